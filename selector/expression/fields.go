package expression

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unique"

	"github.com/google/cel-go/common/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

// Fields are the fields that expressions look at in the objects of a kind.
type Fields struct {
	paths []fields.Path
	// nodes of the tree in depth-first order. The first is the root.
	nodes []node
}

// node is a field, or a parent of fields.
type node struct {
	name string
	// end is the index after the last node below this one.
	end int
	// leaf nodes are the paths.
	leaf bool
}

// NewFields of these paths. A path below another one is part of it.
func NewFields(paths ...fields.Path) *Fields {
	f := &Fields{paths: tops(paths)}
	f.addNode("", f.paths, 0)
	return f
}

// addNode of paths that have the same names before depth.
func (f *Fields) addNode(name string, paths []fields.Path, depth int) {
	at := len(f.nodes)
	f.nodes = append(f.nodes, node{name: name})
	if len(paths) == 1 && len(paths[0]) == depth {
		f.nodes[at].leaf = true
		paths = nil
	}
	for len(paths) > 0 {
		child := paths[0][depth]
		n := 1
		for n < len(paths) && paths[n][depth] == child {
			n++
		}
		f.addNode(child, paths[:n], depth+1)
		paths = paths[n:]
	}
	f.nodes[at].end = len(f.nodes)
}

// child returns the index of the node with a name below a parent.
func (f *Fields) child(parent int, name string) (int, bool) {
	for i := parent + 1; i < f.nodes[parent].end; i = f.nodes[i].end {
		if f.nodes[i].name == name {
			return i, true
		}
	}
	return 0, false
}

// Paths of the fields, sorted, none below another.
func (f *Fields) Paths() []fields.Path { return f.paths }

// Covers reports whether all these paths are among the fields or below them.
func (f *Fields) Covers(paths ...fields.Path) bool {
	for _, p := range paths {
		if !slices.ContainsFunc(f.paths, p.StartsWith) {
			return false
		}
	}
	return true
}

// Project takes the fields out of an object. A field longer than MaxExpressionValueBytes,
// or with more than MaxExpressionElements, becomes an error for the expressions that look at it.
func (f *Fields) Project(content map[string]any) *Object {
	o := &Object{fields: f, values: make([]any, len(f.nodes))}
	var names [8]string
	f.project(o.values, 0, content, names[:0])
	for _, v := range o.values {
		o.length += Length(v)
	}
	return o
}

func (f *Fields) project(values []any, at int, value any, names fields.Path) {
	if f.nodes[at].leaf {
		values[at] = keep(value, names)
		return
	}
	content, ok := value.(map[string]any)
	if !ok {
		if _, isList := value.([]any); isList {
			value = []any{} // What is below a list by name is an error, whatever is in it.
		}
		values[at] = keep(value, names)
		return
	}
	values[at] = parent{}
	for i := at + 1; i < f.nodes[at].end; i = f.nodes[i].end {
		if child, ok := content[f.nodes[i].name]; ok {
			f.project(values, i, child, append(names, f.nodes[i].name))
		}
	}
}

// parent is the value of a node that has nodes below it, in an object that has a map there.
type parent struct{}

// shortText is the length of texts that objects are likely to share.
const shortText = 64

// keep returns a value of CEL, which does not keep the object in memory.
func keep(value any, path fields.Path) any {
	if !(&room{v1beta1.MaxExpressionValueBytes, v1beta1.MaxExpressionElements}).take(value) {
		return types.WrapErr(&tooLongError{slices.Clone(path)})
	}
	switch v := clone(value).(type) {
	case []any, map[string]any:
		return v
	default:
		return types.DefaultTypeAdapter.NativeToValue(v)
	}
}

// tooLong says what is wrong with a field over these limits.
var tooLong = fmt.Sprintf("longer than %d KiB or %d elements", v1beta1.MaxExpressionValueBytes>>10, v1beta1.MaxExpressionElements)

// tooLongError is the value of a field that is too long.
type tooLongError struct{ path fields.Path }

func (e *tooLongError) Error() string { return e.in("") }

func (e *tooLongError) in(variable string) string {
	return strings.TrimPrefix(e.path.In(variable), ".") + " is " + tooLong
}

// TooManyElements reports whether a value has more than MaxExpressionElements.
func TooManyElements(value any) bool {
	return !(&room{math.MaxInt, v1beta1.MaxExpressionElements}).take(value)
}

// room for values: bytes as JSON, roughly, and elements.
type room struct{ bytes, elements int }

// take the room that a value needs, and report whether there was enough.
func (r *room) take(value any) bool {
	switch v := value.(type) {
	case string:
		r.bytes -= len(v) + len(`"",`)
	case []any:
		r.bytes -= len("[],")
		r.elements -= len(v)
		for i := 0; i < len(v) && r.bytes >= 0 && r.elements >= 0; i++ {
			r.take(v[i])
		}
	case map[string]any:
		r.bytes -= len("{},")
		r.elements -= len(v)
		for key, child := range v {
			if r.bytes -= len(key) + len(`"":`); !r.take(child) {
				break
			}
		}
	case nil, bool, int, int64, float64:
		r.bytes -= len("true,")
	default: // It was not read, because of its length.
		r.bytes = -1
	}
	return r.bytes >= 0 && r.elements >= 0
}

func clone(value any) any {
	switch v := value.(type) {
	case string:
		return cloneText(v)
	case []any:
		all := make([]any, len(v))
		for i, element := range v {
			all[i] = clone(element)
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for key, child := range v {
			all[cloneText(key)] = clone(child)
		}
		return all
	default:
		return v
	}
}

func cloneText(s string) string {
	if len(s) <= shortText {
		return unique.Make(s).Value()
	}
	return strings.Clone(s)
}
