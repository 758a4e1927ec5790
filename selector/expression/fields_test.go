package expression

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

func TestFields(t *testing.T) {
	f := NewFields(fields.Path{"b", "c"}, fields.Path{"a"}, fields.Path{"b", "c"}, fields.Path{"a", "x"}, fields.Path{"b", "a"}, fields.Path{"bb"})
	assert.Equal(t, []fields.Path{{"a"}, {"b", "a"}, {"b", "c"}, {"bb"}}, f.Paths())
	assert.True(t, f.Covers())
	assert.True(t, f.Covers(fields.Path{"a"}, fields.Path{"a", "z"}, fields.Path{"b", "c"}))
	assert.False(t, f.Covers(fields.Path{"a"}, fields.Path{"b"}), "We should not hold all of b.")
	assert.False(t, f.Covers(fields.Path{"b", "d"}))
	assert.Empty(t, NewFields().Paths())
	assert.True(t, NewFields().Covers())
}

func TestProject(t *testing.T) {
	f := NewFields(fields.Path{"a"}, fields.Path{"b", "c"}, fields.Path{"b", "d", "e"}, fields.Path{"l", "m"})
	list := []any{"x", map[string]any{"y": int64(1)}}
	content := map[string]any{
		"a": list, "b": map[string]any{"c": nil, "d": map[string]any{"f": "dropped"}, "g": "dropped"}, "l": []any{"dropped"}, "m": "dropped",
	}
	o := f.Project(content)
	list[0] = "changed"
	value, ok := o.Lookup(fields.Path{"a"})
	assert.True(t, ok)
	assert.Equal(t, []any{"x", map[string]any{"y": int64(1)}}, value, "We should not hold a part of the object itself.")
	value, ok = o.Lookup(fields.Path{"b", "c"})
	assert.True(t, ok, "We should tell null from absent.")
	assert.Nil(t, value)
	value, ok = o.Lookup(fields.Path{"b"})
	assert.True(t, ok)
	assert.Equal(t, map[string]any{"c": nil, "d": map[string]any{}}, value)
	for _, absent := range []fields.Path{{"b", "d", "e"}, {"b", "g"}, {"m"}, {"l", "m"}, {"a", "x"}} {
		_, ok = o.Lookup(absent)
		assert.False(t, ok, absent)
	}
	assert.True(t, o.HasText(fields.Path{"a"}, "") == false && NewFields(fields.Path{"a"}).Project(map[string]any{"a": "x"}).HasText(fields.Path{"a"}, "x"))

	assert.True(t, o.Same(NewFields(f.Paths()...).Project(map[string]any{
		"a": []any{"x", map[string]any{"y": int64(1)}}, "b": map[string]any{"c": nil, "d": map[string]any{}}, "l": []any{"other"},
	})))
	for _, other := range []map[string]any{
		{}, {"a": "x"}, {"a": []any{"x"}}, {"a": []any{"x", map[string]any{"y": int64(1)}}, "b": map[string]any{"d": map[string]any{}}, "l": []any{}},
	} {
		assert.False(t, o.Same(f.Project(other)))
		assert.False(t, f.Project(other).Same(o))
	}
	assert.False(t, o.Same(NewFields(fields.Path{"z"}).Project(content)))
	assert.False(t, o.Same(nil))
	assert.True(t, (*Object)(nil).Same(nil))
}

func TestTooLong(t *testing.T) {
	limit := v1beta1.MaxExpressionValueBytes
	f := NewFields(fields.Path{"a", "b"}, fields.Path{"c"})
	for name, tc := range map[string]struct {
		value any
		ok    bool
	}{
		"Text":      {strings.Repeat("a", limit-10), true},
		"LongText":  {strings.Repeat("a", limit), false},
		"List":      {make([]any, 1000), true},
		"LongList":  {make([]any, limit), false},
		"LongMap":   {map[string]any{strings.Repeat("a", limit): nil}, false},
		"Nested":    {map[string]any{"a": []any{map[string]any{"b": strings.Repeat("a", limit)}}}, false},
		"NotAsJSON": {struct{}{}, false},
	} {
		o := f.Project(map[string]any{"a": map[string]any{"b": tc.value}, "c": int64(1)})
		_, ok := o.Lookup(fields.Path{"a", "b"})
		assert.Equal(t, tc.ok, ok, name)
		assert.True(t, o.Same(f.Project(map[string]any{"a": map[string]any{"b": tc.value}, "c": int64(1)})), name)
		in := &Input{Class: o}
		_, err := compiled(t, "class.a.b != null && class.c == 1", Bool).Bool(in, &Budget{plenty})
		if tc.ok {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, "class.a.b is longer than 16 KiB or 1000 elements", name)
		}
		got, err := compiled(t, "class.c == 1", Bool).Bool(in, &Budget{plenty})
		require.NoError(t, err, "An expression that does not look at the field should not fail.")
		assert.True(t, got)
	}
}

// TestMemory holds the fields of many classes, which share texts.
func TestMemory(t *testing.T) {
	f := NewFields(fields.Path{"driver"}, fields.Path{"spec", "price"}, fields.Path{"spec", "size", "max"}, fields.Path{"metadata", "labels", "tier"})
	const n = 10_000
	held := make([]*Object, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range held {
		content := benchmarkClass(i)
		content["driver"] = strings.Clone("ebs.csi.aws.com")
		content["spec"].(map[string]any)["long"] = strings.Repeat("a", 1000) + strconv.Itoa(i)
		held[i] = f.Project(content)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perClass := (after.HeapAlloc - before.HeapAlloc) / n
	t.Logf("%d bytes a class", perClass)
	assert.Less(t, perClass, uint64(320), "We should hold little more than the values.")
	runtime.KeepAlive(held)
}
