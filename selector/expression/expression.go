// Package expression compiles and evaluates the CEL expressions of registrations, in the
// environment in which Kubernetes evaluates its own.
package expression

import (
	"github.com/google/cel-go/common/ast"

	"github.com/classbind/classbind/selector/fields"
)

// Variables of expressions.
const (
	Claim     = "claim"
	Class     = "class"
	Namespace = "namespace"
	Request   = "request"
	Related   = "related"
)

// variables of expressions, in the order in which they are shown.
var variables = []string{Claim, Class, Namespace, Request, Related}

// Result is the type that an expression must have.
type Result int8

// The types of results.
const (
	Bool Result = iota
	Text
	Number
	// Selector is a text, or a map of texts.
	Selector
	// anything is the result of a part of an expression.
	anything
)

// Scope is what an expression may use.
type Scope struct {
	// Variables that it may use.
	Variables []string
	// Related are the names that may follow "related.".
	Related []string
}

// Expression is compiled. It is immutable.
type Expression struct {
	text    string
	result  Result
	scope   Scope
	ast     *ast.AST
	looks   map[string][]fields.Path
	program *program
	// plain is an expression that is only a field, which needs no program.
	plain *field
}

// field of a variable.
type field struct {
	variable string
	path     fields.Path
}

// String is the expression as it was written, and a part of one as CEL writes it.
func (e *Expression) String() string { return e.text }

// Looks lists what the expression looks at in a variable, each path once, none below another.
// A path in Related starts with the name of the object, and is never only that name: an
// expression that only asks whether there is the object looks at its metadata.name.
func (e *Expression) Looks(variable string) []fields.Path { return e.looks[variable] }

// Uses reports whether it looks at a variable at all.
func (e *Expression) Uses(variable string) bool { return len(e.looks[variable]) > 0 }
