// Package expression compiles and evaluates the CEL expressions of registrations, in the
// environment in which Kubernetes evaluates its own.
package expression

import (
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
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

// Path of a field that an expression looks at, below its variable: the names of fields, and
// constant keys of maps. It is empty for the whole variable.
type Path []string

// String is the path as it is written in an expression, without the variable.
func (p Path) String() string {
	return strings.TrimPrefix(p.below(""), ".")
}

// below writes the path after the name of its variable.
func (p Path) below(variable string) string {
	b := strings.Builder{}
	b.WriteString(variable)
	for _, name := range p {
		if isIdentifier(name) {
			b.WriteByte('.')
			b.WriteString(name)
		} else {
			b.WriteString("[" + strconv.Quote(name) + "]")
		}
	}
	return b.String()
}

func isIdentifier(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

func (p Path) startsWith(start Path) bool {
	return len(p) >= len(start) && slices.Equal(p[:len(start)], start)
}

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
	looks   map[string][]Path
	program *program
	// plain is an expression that is only a field, which needs no program.
	plain *field
}

// field of a variable.
type field struct {
	variable string
	path     Path
}

// String is the expression as it was written.
func (e *Expression) String() string { return e.text }

// Looks lists what the expression looks at in a variable, each path once, none below another.
// A path in Related starts with the name of the object, and is never only that name: an
// expression that only asks whether there is the object looks at its metadata.name.
func (e *Expression) Looks(variable string) []Path { return e.looks[variable] }

// Uses reports whether it looks at a variable at all.
func (e *Expression) Uses(variable string) bool { return len(e.looks[variable]) > 0 }
