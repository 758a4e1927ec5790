// Package exit is for commands whose exit status is an answer.
package exit

import (
	"errors"

	"github.com/spf13/cobra"
)

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

// AsFailed gives an error the status Failed, unless it has one. nil stays nil.
func AsFailed(err error) error {
	if err == nil || errors.As(err, new(*Error)) {
		return err
	}
	return &Error{Status: Failed, Err: err}
}

// Run has a command fail with the status Failed, unless its error has another.
func Run(c *cobra.Command, run func(args []string) error) {
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return AsFailed(err) })
	c.RunE = func(_ *cobra.Command, args []string) error { return AsFailed(run(args)) }
}
