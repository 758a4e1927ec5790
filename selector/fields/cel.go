// Package fields has paths of nested fields: how to read only these from JSON, patch them, and write
// them as CEL.
package fields

import (
	"fmt"
	"strings"
)

// At is the CEL expression for the value at a path of an object. It uses indexes, because a field
// may have the name of a CEL keyword.
func (p Path) At(object string) string {
	var b strings.Builder
	b.WriteString(object)
	for _, name := range p {
		fmt.Fprintf(&b, "[%q]", name)
	}
	return b.String()
}

// IsSet is the CEL expression that reports whether the value at a path is there and not null.
func (p Path) IsSet(object string) string { return "!(" + p.IsUnset(object) + ")" }

// IsUnset is the opposite of IsSet. It stops at the first missing name, because the API
// server evaluates it for every claim. Looking into what is not a map is an error, as
// in a claim whose spec is a string, or where there is no object. CEL ignores an error
// if another term of the || is true, and then the last terms are true.
func (p Path) IsUnset(object string) string {
	var terms []string
	for i, name := range p {
		terms = append(terms, fmt.Sprintf("!(%q in %s)", name, p[:i].At(object)))
	}
	terms = append(terms, p.At(object)+" == null")
	for i := range p {
		terms = append(terms, fmt.Sprintf("type(%s) != map", p[:i].At(object)))
	}
	return strings.Join(terms, " || ")
}

// IsAbsent is the CEL expression that reports whether an object has nothing but null at a path. It
// fails where something on the way is neither an object nor null.
func (p Path) IsAbsent(object string) string {
	var terms []string
	for i, name := range p {
		lacks := fmt.Sprintf("!(%q in %s)", name, p[:i].At(object))
		if i > 0 { // A list has an in, too.
			lacks = fmt.Sprintf("type(%s) == map && %s", p[:i].At(object), lacks)
		}
		terms = append(terms, lacks, p[:i+1].At(object)+" == null")
	}
	return strings.Join(terms, " || ")
}
