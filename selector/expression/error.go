package expression

import (
	"errors"
	"fmt"
	"strings"
)

// ErrBudget says that the evaluations for one claim or class cost too much.
var ErrBudget = errors.New("the expressions cost too much")

// ErrAbsent is wrapped by the error of an evaluation that needs a related object which is
// absent.
var ErrAbsent = errors.New("a related object is absent")

// Error is why an expression does not compile.
type Error struct {
	// Line and Column count from 1.
	Line, Column int
	// Text of the error, and of the expression.
	Text, Source string
}

func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
}

// Caret shows the line with a caret under the place of the error.
func (e *Error) Caret() string {
	lines := strings.Split(e.Source, "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return e.Source
	}
	line := strings.TrimSuffix(lines[e.Line-1], "\r")
	before := []rune(line)
	before = before[:max(min(e.Column-1, len(before)), 0)]
	indent := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(before))
	return line + "\n" + indent + "^"
}

// absentError is an error of an evaluation that wraps ErrAbsent.
type absentError struct{ name string }

func (e *absentError) Error() string { return "there is no " + Path{e.name}.below(Related) }
func (e *absentError) Unwrap() error { return ErrAbsent }
