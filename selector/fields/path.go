// Package fields has paths of nested fields: how to read only these from JSON, patch them, and write them as CEL.
package fields

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Path is the names of nested fields, from the outermost in.
type Path []string

// Element is a name that stands for the elements of a list, or the values of a map, in the path of a schema.
const Element = "[]"

func (p Path) String() string {
	if p.IsKey() {
		return strings.Join(p[:2], ".") + "[" + p[2] + "]"
	}
	return strings.Join(p, ".")
}

// IsKey reports whether the last name is the key of a label or an annotation.
func (p Path) IsKey() bool {
	return len(p) == 3 && p[0] == "metadata" && (p[1] == "labels" || p[1] == "annotations")
}

// Pointer is the path in RFC 6901 form.
func (p Path) Pointer() string {
	var b strings.Builder
	for _, name := range p {
		b.WriteByte('/')
		b.WriteString(inPointer.Replace(name))
	}
	return b.String()
}

var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

// Below is the path of a field of the field at p.
func (p Path) Below(name string) Path { return append(slices.Clip(p), name) }

// Field is the path as errors have it.
func (p Path) Field() *field.Path {
	if p.IsKey() {
		return field.NewPath(p[0], p[1]).Key(p[2])
	}
	return field.NewPath(p[0], p[1:]...)
}

// CopyField copies a field, and the objects that lead to it, because has() distinguishes those
// from absent ones. For the same reason, it copies what is no object on the way.
func CopyField(to, from map[string]any, p Path) {
	value, ok := from[p[0]]
	if !ok {
		return
	}
	child, isObject := value.(map[string]any)
	switch {
	case len(p) == 1:
		to[p[0]] = value
		return
	case !isObject && !IsRead(value):
		to[p[0]] = []any{} // Most are lists, in which there are no such fields either.
		return
	case !isObject:
		to[p[0]] = value
		return
	}
	below, _ := to[p[0]].(map[string]any)
	if below == nil {
		below = map[string]any{}
		to[p[0]] = below
	}
	CopyField(below, child, p[1:])
}

// IsRead reports whether all of a value was read.
func IsRead(value any) bool {
	isUnread := func(value any) bool { return !IsRead(value) }
	switch v := value.(type) {
	case Unread, LongText:
		return false
	case []any:
		return !slices.ContainsFunc(v, isUnread)
	case map[string]any:
		for _, child := range v {
			if isUnread(child) {
				return false
			}
		}
	}
	return true
}

// StartsWith reports whether a path is another one, or below it.
func (p Path) StartsWith(start Path) bool {
	return len(p) >= len(start) && slices.Equal(p[:len(start)], start)
}

// Overlaps reports whether one of two paths is the other one, or below it.
func (p Path) Overlaps(o Path) bool { return p.StartsWith(o) || o.StartsWith(p) }

// In writes the path as an expression does, after the name of its variable.
func (p Path) In(variable string) string {
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

// Shown is the same for people, with [] for the elements of a list.
func (p Path) Shown(variable string) string {
	return strings.ReplaceAll(p.In(variable), `["`+Element+`"]`, Element)
}

func isIdentifier(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// At is the CEL expression for the value at a path of an object. It uses indexes, because a field may have the name of a CEL keyword.
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

// IsUnset is the opposite of IsSet. It stops at the first missing name, because the API server evaluates it for every claim. Looking into
// what is not a map is an error, as in a claim whose spec is a string, or where there is no object. CEL ignores an error if another term of
// the || is true, and then the last terms are true.
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
