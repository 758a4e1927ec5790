package expression

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// adapter makes values of CEL. Expressions go through its maps in the order of the keys.
type adapter struct{}

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return &content{v}
	case []any:
		return &elements{types.NewDynamicList(a, v), v}
	default:
		return types.DefaultTypeAdapter.NativeToValue(v)
	}
}

// elements of a list as JSON is decoded. Like content, they may become the key of a Go map.
type elements struct {
	traits.Lister

	all []any
}

// content of an object as JSON is decoded. It is a value of CEL, which must be one that a Go
// map can have as a key.
type content struct{ fields map[string]any }

var _ traits.Mapper = (*content)(nil)

// Find implements traits.Mapper.
func (c *content) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	value, ok := c.fields[string(name)]
	if !ok {
		return nil, false
	}
	return adapter{}.NativeToValue(value), true
}

// Get implements traits.Indexer.
func (c *content) Get(key ref.Val) ref.Val { return get(c, key) }

func get(m traits.Mapper, key ref.Val) ref.Val {
	value, ok := m.Find(key)
	if !ok {
		return types.ValOrErr(value, "no such key: %v", key)
	}
	return value
}

// Contains implements traits.Container.
func (c *content) Contains(key ref.Val) ref.Val {
	_, ok := c.Find(key)
	return types.Bool(ok)
}

// Iterator implements traits.Iterable.
func (c *content) Iterator() traits.Iterator {
	keys := slices.Sorted(maps.Keys(c.fields))
	return types.NewStringList(adapter{}, keys).Iterator()
}

// Size implements traits.Sizer.
func (c *content) Size() ref.Val { return types.Int(len(c.fields)) }

// IsZeroValue implements traits.Zeroer.
func (c *content) IsZeroValue() bool { return len(c.fields) == 0 }

// Type implements ref.Val.
func (c *content) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (c *content) Value() any { return c.fields }

// Equal implements ref.Val.
func (c *content) Equal(other ref.Val) ref.Val { return c.mapper().Equal(other) }

// ConvertToNative implements ref.Val.
func (c *content) ConvertToNative(t reflect.Type) (any, error) { return c.mapper().ConvertToNative(t) }

// ConvertToType implements ref.Val.
func (c *content) ConvertToType(t ref.Type) ref.Val {
	if t == types.MapType {
		return c
	}
	return c.mapper().ConvertToType(t)
}

func (c *content) mapper() traits.Mapper { return types.NewStringInterfaceMap(adapter{}, c.fields) }

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
