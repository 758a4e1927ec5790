package selector

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
)

// path is the names of nested fields, from the outermost in.
type path []string

// Limits of a FieldPath, as its schema has them.
const (
	maxPathNames = 10
	maxPathBytes = 256
)

func newPath(p v1alpha1.FieldPath) path {
	return p.Names()
}

func (p path) String() string {
	if p.isKey() {
		return strings.Join(p[:2], ".") + "[" + p[2] + "]"
	}
	return strings.Join(p, ".")
}

// isKey says that the last name is the key of a label or an annotation.
func (p path) isKey() bool {
	return len(p) == 3 && p[0] == "metadata" && (p[1] == "labels" || p[1] == "annotations")
}

// pointer is the path in RFC 6901 form.
func (p path) pointer() string {
	var b strings.Builder
	for _, name := range p {
		b.WriteByte('/')
		b.WriteString(inPointer.Replace(name))
	}
	return b.String()
}

var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

// below is the path of a field of the field at p.
func (p path) below(name string) path { return append(slices.Clip(p), name) }

func (p path) field() *field.Path {
	if p.isKey() {
		return field.NewPath(p[0], p[1]).Key(p[2])
	}
	return field.NewPath(p[0], p[1:]...)
}

// lookup returns the value at the path, nil if it is null or absent. It fails if
// something on the way is not an object.
func (p path) lookup(object map[string]any) (any, *field.Error) {
	for i, name := range p[:len(p)-1] {
		switch v := object[name].(type) {
		case map[string]any:
			object = v
		case nil:
			return nil, nil
		default:
			return nil, field.TypeInvalid(p[:i+1].field(), field.OmitValueType{}, "must be an object")
		}
	}
	return object[p[len(p)-1]], nil
}

// copyField copies a field, and the objects that lead to it, because has() tells those apart
// from absent ones. For the same reason, it copies what is no object on the way.
func copyField(to, from map[string]any, p path) {
	value, ok := from[p[0]]
	if !ok {
		return
	}
	child, isObject := value.(map[string]any)
	switch {
	case len(p) == 1:
		to[p[0]] = value
		return
	case !isObject && !isRead(value):
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
	copyField(below, child, p[1:])
}
