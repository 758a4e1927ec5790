package expression

import (
	"errors"
	"fmt"
	"strings"

	"github.com/classbind/classbind/selector/fields"
)

// ErrBudget means that the evaluations for one claim or class cost too much.
var ErrBudget = errors.New("the expressions cost too much")

// ErrAbsent is wrapped by the error of an evaluation that needs a related object which is absent.
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

// valueError is an error of an evaluation that may quote a value of a class or a related object. The
// authors of claims must not see that, so the error itself has only its kind.
type valueError struct{ kind, detail string }

func (e *valueError) Error() string { return e.kind }

// Detail is the text of an error with the values that an evaluation quotes. It is for those who can read all that the expression sees.
func Detail(err error) string {
	if e := (*valueError)(nil); errors.As(err, &e) {
		return strings.Replace(err.Error(), e.kind, e.detail, 1)
	}
	return err.Error()
}

const (
	wrongType       = "a value has the wrong type"
	invalidSelector = "the label selector is invalid"
	invalidPattern  = "a pattern is malformed, is longer than 256 bytes, or has (?i) or \\p"
)

// errorKinds are the kinds of errors of CEL and Kubernetes' libraries, by a part of their text. The first that fits counts.
var errorKinds = []struct{ part, kind string }{
	{keyIsWrong, keyIsWrong},
	{fieldIsWrong, fieldIsWrong},
	{invalidSelector, invalidSelector},
	{invalidPattern, invalidPattern},
	{isNotKnown, "a variable is not known"},
	{"no such key", "no such key"},
	{"no such overload", wrongType},
	{"unsupported index", wrongType},
	{"unexpected type", wrongType},
	{"index out of bounds", "an index is out of range"},
	{"division by zero", "division by zero"},
	{"modulus by zero", "division by zero"},
	{"the quantity is too long, or out of range", "the quantity is too long, or out of range"},
	{"overflow", "a number or a time is out of range"},
	{"out of range", "a number or a time is out of range"},
	{"", "a value cannot be converted or is malformed"},
}

func kindOfError(text string) string {
	for _, k := range errorKinds {
		if strings.Contains(text, k.part) {
			return k.kind
		}
	}
	return ""
}

// absentError is an error of an evaluation that wraps ErrAbsent.
type absentError struct{ variable, name string }

func (e *absentError) Error() string { return "there is no " + fields.Path{e.name}.In(e.variable) }

func (e *absentError) Unwrap() error { return ErrAbsent }
