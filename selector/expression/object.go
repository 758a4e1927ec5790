package expression

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/classbind/classbind/selector/fields"
)

// Object is the projection of an object to Fields, in little memory. It is a value of CEL.
type Object struct {
	// Mapper is nil. It stands for the methods of the object as a whole, at which Compile lets no expression look.
	traits.Mapper

	fields *Fields
	// node of the tree of fields that this part of the object is.
	node int
	// values of the nodes: a value of CEL, a list or a map as JSON is decoded, a parent, or nil if the field is absent.
	values []any
	// length of the values in all.
	length uint64
}

// Length is what it costs to go through all values once, 0 for nil.
func (o *Object) Length() uint64 {
	if o == nil {
		return 0
	}
	return o.length
}

// Length of a value as JSON is decoded.
func Length(value any) uint64 { return units(value, math.MaxUint32) }

// Lookup returns the value at a path, as JSON is decoded; false if it is absent, or too long.
func (o *Object) Lookup(path fields.Path) (any, bool) {
	value, err := o.lookup(path)
	if value == nil || err != nil {
		return nil, false
	}
	return native(value), true
}

func (o *Object) part(node int) *Object {
	return &Object{fields: o.fields, node: node, values: o.values}
}

// HasText reports whether the value at a path is this text.
func (o *Object) HasText(path fields.Path, text string) bool {
	value, _ := o.lookup(path)
	switch has := value.(type) {
	case types.String:
		return string(has) == text
	case string: // It is in a map that is held as a whole.
		return has == text
	default:
		return false
	}
}

// lookup returns the value at a path as it is held, nil if it is absent.
func (o *Object) lookup(path fields.Path) (any, error) {
	at := o.node
	for len(path) > 0 && !o.fields.nodes[at].leaf {
		child, ok := o.fields.child(at, path[0])
		if !ok {
			return nil, nil
		}
		at, path = child, path[1:]
	}
	value := o.values[at]
	switch v := value.(type) {
	case *types.Err:
		return nil, v.Unwrap()
	case parent:
		value = o.part(at)
	}
	return find(value, path)
}

// native returns a held value as JSON is decoded.
func native(value any) any {
	switch v := value.(type) {
	case types.Null:
		return nil
	case *Object:
		return v.Whole()
	case ref.Val: // A scalar: all else is held as JSON is decoded.
		return v.Value()
	default:
		return v
	}
}

// Whole is what is held as JSON is decoded, without fields that are too long.
func (o *Object) Whole() map[string]any {
	all := map[string]any{}
	nodes := o.fields.nodes
	for i := o.node + 1; i < nodes[o.node].end; i = nodes[i].end {
		switch v := o.values[i].(type) {
		case nil, *types.Err:
		case parent:
			all[nodes[i].name] = o.part(i).Whole()
		default:
			all[nodes[i].name] = native(v)
		}
	}
	return all
}

// Same reports whether both have the same fields with the same values.
func (o *Object) Same(other *Object) bool {
	if o == other {
		return true
	}
	if o == nil || other == nil || len(o.values) != len(other.values) {
		return false
	}
	samePaths := o.fields == other.fields || slices.EqualFunc(o.fields.paths, other.fields.paths, slices.Equal)
	return samePaths && slices.EqualFunc(o.values, other.values, sameValue)
}

func sameValue(a, b any) bool {
	switch a.(type) {
	case []any, map[string]any, *types.Err:
		return reflect.DeepEqual(a, b)
	default:
		if t := reflect.TypeOf(b); t != nil && !t.Comparable() {
			return false
		}
		return a == b
	}
}

// Find implements traits.Mapper.
func (o *Object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	i, ok := o.fields.child(o.node, string(name))
	if !ok {
		return nil, false
	}
	switch v := o.values[i].(type) {
	case nil:
		return nil, false
	case parent:
		return o.part(i), true
	case *types.Err:
		return v, false
	case ref.Val:
		return v, true
	default:
		return adapter{}.NativeToValue(v), true
	}
}

// Get implements traits.Indexer.
func (o *Object) Get(key ref.Val) ref.Val {
	value, ok := o.Find(key)
	if !ok {
		return types.ValOrErr(value, "no such key: %v", key)
	}
	return value
}

// Contains implements traits.Container.
func (o *Object) Contains(key ref.Val) ref.Val {
	value, ok := o.Find(key)
	if types.IsError(value) {
		return value
	}
	return types.Bool(ok)
}

// Type implements ref.Val.
func (o *Object) Type() ref.Type { return types.MapType }

// adapter makes values of CEL. Expressions go through its maps in the order of the keys.
type adapter struct{}

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return &content{types.NewStringInterfaceMap(a, v), v}
	case []any:
		return &elements{types.NewDynamicList(a, v), v}
	default:
		return types.DefaultTypeAdapter.NativeToValue(v)
	}
}

// elements of a list as JSON is decoded.
type elements struct {
	traits.Lister

	all []any
}

// Contains implements traits.Container. A string is compared with the strings as they are: to make
// each element a value first takes three times as long.
func (e *elements) Contains(value ref.Val) ref.Val {
	text, ok := value.(types.String)
	if !ok {
		return e.Lister.Contains(value)
	}
	return types.Bool(slices.Contains(e.all, any(string(text))))
}

// IsZeroValue implements traits.Zeroer.
func (e *elements) IsZeroValue() bool { return len(e.all) == 0 }

// content of an object as JSON is decoded.
type content struct {
	traits.Mapper

	fields map[string]any
}

// Iterator implements traits.Iterable.
func (c *content) Iterator() traits.Iterator {
	return types.NewStringList(adapter{}, slices.Sorted(maps.Keys(c.fields))).Iterator()
}

// IsZeroValue implements traits.Zeroer.
func (c *content) IsZeroValue() bool { return len(c.fields) == 0 }

// sortedMap is a map that an expression makes and goes through.
type sortedMap struct{ traits.Mapper }

// Iterator implements traits.Iterable.
func (m sortedMap) Iterator() traits.Iterator {
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, func(a, b ref.Val) int {
		if c := cmp.Compare(a.Type().TypeName(), b.Type().TypeName()); c != 0 {
			return c
		}
		if comparer, ok := a.(traits.Comparer); ok {
			if c, ok := comparer.Compare(b).(types.Int); ok {
				return int(c)
			}
		}
		return cmp.Compare(fmt.Sprint(a.Value()), fmt.Sprint(b.Value()))
	})
	return types.NewRefValList(adapter{}, keys).Iterator()
}
