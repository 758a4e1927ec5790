// Package exit is for commands whose exit status is an answer.
package exit

import (
	"errors"

	"github.com/spf13/cobra"
)

// The statuses of commands whose exit status is an answer. With 0, all is well.
const (
	// Unmatched means that "classbind explain" found a claim without a class, or files that do not show whether its kind is registered.
	// "classbind bind" found no class for a claim, and "classbind classes" none that one may get. Or "classbind status" found something
	// that is broken, "classbind check" a mistake, or "classbind simulate" claims that lose their class.
	Unmatched = 1
	Broken    = 1
	// Failed means that a command has no answer: its arguments are wrong, or what it asks cannot be read.
	Failed = 2
	// Overtaken means that somebody else moved the default while "classbind set-default" did.
	Overtaken = 3
)

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
