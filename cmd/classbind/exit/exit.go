// Package exit is for commands whose exit status is an answer.
package exit

// Failed is the status of a command that has no answer: its arguments are wrong, or
// what it asks cannot be read.
const Failed = 2

// Error is an error with the exit status of the program.
type Error struct {
	Status int
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// AsFailed gives an error the status Failed. nil stays nil.
func AsFailed(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Status: Failed, Err: err}
}
