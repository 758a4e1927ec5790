package expression

import (
	"cmp"
	"fmt"
	"maps"
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
