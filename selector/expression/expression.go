// Package expression compiles and evaluates the CEL expressions of registrations, in the
// environment in which Kubernetes evaluates its own.
package expression

import "errors"

// Variables of expressions.
const (
	Claim     = "claim"
	Class     = "class"
	Namespace = "namespace"
	Request   = "request"
	Related   = "related"
)

// Path of a field that an expression looks at, below its variable: the names of fields, and
// constant keys of maps. It is empty for the whole variable.
type Path []string

// Result is the type that an expression must have.
type Result int8

// The types of results.
const (
	Bool Result = iota
	Text
	Number
	// Selector is a text, or a map of texts.
	Selector
)

// Scope is what an expression may use.
type Scope struct {
	// Variables that it may use.
	Variables []string
	// Related are the names that may follow "related.".
	Related []string
}

// Expression is compiled. It is immutable.
type Expression struct{}

// Error is why an expression does not compile.
type Error struct {
	// Line and Column count from 1.
	Line, Column int
	// Text of the error, and of the expression.
	Text, Source string
}

func (e *Error) Error() string { panic("engine") }

// Caret shows the line with a caret under the place of the error.
func (e *Error) Caret() string { panic("engine") }

// ErrBudget says that the evaluations for one claim or class cost too much.
var ErrBudget = errors.New("budget")

// Budget limits the cost of evaluations, in the units of Kubernetes.
type Budget struct{ Left uint64 }

// Compile an expression. The error is an *Error.
func Compile(text string, result Result, scope Scope) (*Expression, error) { panic("engine") }

// String is the expression as it was written.
func (e *Expression) String() string { panic("engine") }

// Looks lists what the expression looks at in a variable, each path once, none below another.
func (e *Expression) Looks(variable string) []Path { panic("engine") }

// Uses says whether it looks at a variable at all.
func (e *Expression) Uses(variable string) bool { panic("engine") }

// Terms of a conjunction: an expression that is none is its own only term.
func (e *Expression) Terms() []*Expression { panic("engine") }

// Equality returns the two sides of class.PATH == VALUE, where VALUE does not use class.
func (e *Expression) Equality() (class Path, value *Expression, ok bool) { panic("engine") }

// Rename returns the text of the expression with other names for its variables.
func (e *Expression) Rename(variables map[string]string) string { panic("engine") }

// Input has the values of the variables. Those that an expression may use must be set.
type Input struct {
	// Claim, Namespace and Request are of map[string]any or *Object, or nil.
	Claim, Namespace, Request any
	Class                     *Object
	// Related objects by name, without those that are absent.
	Related map[string]any
}

// Bool evaluates an expression with that result, as do Text, Number and Selector.
func (e *Expression) Bool(in *Input, budget *Budget) (bool, error) { panic("engine") }

// Text evaluates an expression for a text.
func (e *Expression) Text(in *Input, budget *Budget) (string, error) { panic("engine") }

// Number evaluates an expression for a number: an int64 or a float64, never NaN.
func (e *Expression) Number(in *Input, budget *Budget) (any, error) { panic("engine") }

// Value evaluates any expression: the result is as JSON is decoded, with int64 and float64.
func (e *Expression) Value(in *Input, budget *Budget) (any, error) { panic("engine") }

// Saw is what an expression looked at: a field, and its value as JSON, or "absent".
type Saw struct{ Field, Value string }

// Saw returns what an expression looks at in an input, short enough to be shown.
func (e *Expression) Saw(in *Input) []Saw { panic("engine") }

// Fields are the fields that expressions look at in the objects of a kind.
type Fields struct{}

// NewFields of these paths. A path below another one is part of it.
func NewFields(paths ...Path) *Fields { panic("engine") }

// Paths of the fields, sorted, none below another.
func (f *Fields) Paths() []Path { panic("engine") }

// Covers says whether all these paths are among the fields or below them.
func (f *Fields) Covers(paths ...Path) bool { panic("engine") }

// Project takes the fields out of an object. A field longer than a limit becomes an error for
// the expressions that look at it.
func (f *Fields) Project(content map[string]any) *Object { panic("engine") }

// Object is the projection of an object to Fields, in little memory. It is a value of CEL.
type Object struct{}

// Lookup returns the value at a path, as JSON is decoded; false if it is absent.
func (o *Object) Lookup(path Path) (any, bool) { panic("engine") }

// Same says whether both have the same fields with the same values.
func (o *Object) Same(other *Object) bool { panic("engine") }
