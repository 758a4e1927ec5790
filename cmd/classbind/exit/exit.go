// Package exit has the exit statuses of all commands. With 0, all is well.
package exit

import "errors"

const (
	// Found means that a command worked, and found something: a claim without a class, a broken thing, or a mistake in a file. Or it found
	// claims that lose their class, no field for a reference, or a default that someone else moved.
	Found = 1
	// Failed means that a command has no answer: its arguments are wrong, there is no cluster, a right is missing, or a request failed.
	Failed = 2
)

// finding is an error that means Found.
type finding struct{ error }

func (f finding) Unwrap() error { return f.error }

// Finding is an error with which the command ends with the status Found.
func Finding(err error) error { return finding{err} }

// Status of a command that ended with an error, or nil. Every error but a Finding is a failure.
func Status(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(finding)):
		return Found
	}
	return Failed
}
