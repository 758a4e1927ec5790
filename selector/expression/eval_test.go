package expression

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

func input() *Input {
	return &Input{
		Claim: map[string]any{"spec": map[string]any{
			"int":    int64(3),
			"double": 0.5,
			"text":   "a",
			"list":   []any{"x", "y"},
			"empty":  []any{},
			"map":    map[string]any{"b": int64(1), "a": int64(2)},
			"nil":    nil,
			"yes":    true,
			"long":   strings.Repeat("a", 10_000),
		}},
		Class: NewFields(fields.Path{"spec"}).Project(map[string]any{"spec": map[string]any{"price": 1.5, "text": "a"}}),
		Related: map[string]any{
			"plan": NewFields(fields.Path{"spec", "long"}).Project(map[string]any{"spec": map[string]any{"long": strings.Repeat("a", 20<<10)}}),
		},
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]any{
		"claim.spec.int": int64(3), "claim.spec.double": 0.5, "claim.spec.text": "a", "claim.spec.nil": nil, "claim.spec.yes": true,
		"claim.spec.list": []any{"x", "y"}, "claim.spec.map": map[string]any{"a": int64(2), "b": int64(1)},
		"claim.spec.int * 2": int64(6), "uint(7)": int64(7), "18446744073709551615u": float64(math.MaxUint64), "1.0 / 0.0": math.Inf(1), "-1": int64(-1),
		"{'a': [1u, 2u]}": map[string]any{"a": []any{int64(1), int64(2)}}, "claim.spec.map.map(k, k)": []any{"a", "b"}, "class.spec.text == claim.spec.text": true,
		"quantity('1Gi').isGreaterThan(quantity('1e6')) && isQuantity('1.5Ei') && isQuantity('2E') && quantity('12E1') == quantity('120')":           true,
		"isQuantity('1e' + '999999999') || isQuantity('1' + 'x')":                                                                                    false,
		"'a-b'.replace('-', '.') + ['a', 'b'].join()":                                                                                                "a.bab",
		"sets.contains(claim.spec.list, ['y']) && sets.intersects(['z', 'x'], claim.spec.list) && sets.equivalent(claim.spec.list, ['y', 'x', 'y'])": true,
		"sets.contains(claim.spec.list, ['z']) || sets.intersects(['z'], claim.spec.list) || sets.equivalent(claim.spec.list, ['x'])":                false,
		"claim.spec.int > class.spec.price":   true,
		"{'b': 1, 'a': 2}.map(k, k)":          []any{"a", "b"},
		"{2: 'a', 1: 'b', 10: 'c'}.map(k, k)": []any{int64(1), int64(2), int64(10)},
		"optional.ofNonZeroValue(claim.spec.map).hasValue() && !optional.ofNonZeroValue({}).hasValue()":                true,
		"optional.ofNonZeroValue(claim.spec.list).hasValue() && !optional.ofNonZeroValue(claim.spec.empty).hasValue()": true,
		"has(related.plan) && !has(related.other)":                                                                     true,
		"type(claim.spec.map) == map && type(class.spec) == map":                                                       true,
	} {
		e, err := Compile(text, anything, Scope{Variables: variables, Related: []string{"plan", "other"}})
		require.NoError(t, err)
		got, err := e.Value(input(), &Budget{plenty})
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
}

func TestEvaluationErrors(t *testing.T) {
	scope := Scope{Variables: variables, Related: []string{"plan", "other"}}
	for _, tc := range []struct{ text, want string }{
		{"claim.spec.nope", "no such key: nope"},
		{"claim.spec.nope + 'a'", "no such key: nope"},
		{"claim.spec.text.nope", "no such key: nope"},
		{"claim.spec.list.nope", "a value has the wrong type"},
		{"claim.spec.list[2]", "an index is out of range"},
		{"claim.spec.int / 0", "division by zero"},
		{"claim.spec.int + claim.spec.text", "a value has the wrong type"},
		{"quantity('1e-' + '9999999') == quantity('1')", "the quantity is too long, or out of range"},
		{"sets.intersects(claim.spec.list, [claim.spec.nope])", "no such key: nope"},
		{"quantity(claim.spec.long) == quantity('1')", "the quantity is too long, or out of range"},
		{"class.spec.nope == 1", "no such key: nope"},
		{"related.other.spec.a", "there is no related.other"},
		{"related.other.spec.a + 'b'", "there is no related.other"},
		{"related.plan.spec.long", "related.plan.spec.long is longer than 16 KiB or 1000 elements"},
		{"size(related.plan.spec.long)", "related.plan.spec.long is longer than 16 KiB or 1000 elements"},
		{"namespaceObject.metadata.labels.a", "namespaceObject is not known"},
		{"namespaceObject.metadata.labels.a == 'b'", "namespaceObject is not known"},
		{"request.userInfo.username + 'a'", "request is not known"},
		{"claim.spec.map[claim.spec.list]", "a key must be a text or a number"},
		{"claim.spec.map[claim.spec.long]", "no such key"},
		{"timestamp('2026-01-01T00:00:00Z')", "must be a value, is of type google.protobuf.Timestamp"},
		{"{1: 2}", "must be a text, is of type int"},
		{"claim.spec.?text", "must be a value, is of type optional_type"},
	} {
		e, err := Compile(tc.text, anything, scope)
		require.NoError(t, err)
		_, err = e.Value(input(), &Budget{plenty})
		require.EqualError(t, err, tc.want, tc.text)
		assert.Equal(t, strings.Contains(tc.want, "related.other"), errors.Is(err, ErrAbsent), tc.text)
		assert.LessOrEqual(t, len(err.Error()), v1beta1.MaxShownBytes)
	}
}

// TestMatchesOfAny compares patterns that are values with those that are constants.
func TestMatchesOfAny(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, text, pattern string
		want                  bool
		err                   string
	}{
		"Match":    {reason: "We should match", text: "team-a", pattern: "^team-.*$", want: true},
		"Part":     {reason: "We should find a part, as CEL does", text: "my-team-a", pattern: "team-[a-c]", want: true},
		"None":     {reason: "We should not match", text: "other", pattern: "^team-"},
		"Empty":    {reason: "We should match an empty pattern", text: "team-a", want: true},
		"Group":    {reason: "We should read groups", text: "ab", pattern: "^(?:a)(?P<x>b)$", want: true},
		"Longest":  {reason: "We should read a pattern of the greatest length", text: "a", pattern: strings.Repeat("a?", 128), want: true},
		"TooLong":  {reason: "We should read none that is longer", text: "a", pattern: strings.Repeat("a?", 128) + "a", err: invalidPattern},
		"Invalid":  {reason: "We should refuse what is no pattern", text: "a", pattern: "(", err: invalidPattern},
		"Fold":     {reason: "We should not go through all of Unicode", text: "a", pattern: "(?i)[a-\\x{1E943}]", err: invalidPattern},
		"FoldToo":  {reason: "We should not go through all of Unicode", text: "a", pattern: "(?s-Ui:a)", err: invalidPattern},
		"Category": {reason: "We should not read a category", text: "a", pattern: `\pL`, err: invalidPattern},
		"Repeated": {reason: "We should not compile more than is paid for", text: "a", pattern: "((a{30}){30})", err: ErrBudget.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			in := &Input{Claim: map[string]any{"a": tc.text}, Class: wholeObject(map[string]any{"b": tc.pattern, "c": int64(1)})}
			got, err := compiled(t, "claim.a.matches(class.b)", Bool).Bool(in, &Budget{plenty})
			if tc.err != "" {
				require.EqualError(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, got, tc.reason)
			constant, err := compiled(t, fmt.Sprintf("claim.a.matches(%q)", tc.pattern), Bool).Bool(in, &Budget{plenty})
			require.NoError(t, err, tc.reason)
			assert.Equal(t, constant, got, "We should match as with a constant.")
			_, err = compiled(t, "claim.a.matches(class.c)", Bool).Bool(in, &Budget{plenty})
			require.EqualError(t, err, wrongType, "We should want a string.")
		})
	}
}

func TestResults(t *testing.T) {
	in := input()
	for text, want := range map[string]struct {
		result Result
		value  any
		err    string
	}{
		"claim.spec.text":       {Bool, nil, "must be true or false, is of type string"},
		"claim.spec.int":        {Text, nil, "must be a text, is of type int"},
		"claim.spec.nil":        {Number, nil, "must be a number, is of type null_type"},
		"0.0 / 0.0":             {Number, nil, "must be a number, is NaN"},
		"claim.spec.yes":        {Bool, true, ""},
		"claim.spec.text + 'b'": {Text, "ab", ""},
		"claim.spec.int + 0":    {Number, int64(3), ""},
		"class.spec.price":      {Number, 1.5, ""},
		"3u":                    {Number, int64(3), ""},
	} {
		e, budget := compiled(t, text, want.result), &Budget{plenty}
		var got any
		var err error
		switch want.result {
		case Bool:
			got, err = e.Bool(in, budget)
		case Text:
			got, err = e.Text(in, budget)
		default:
			got, err = e.Number(in, budget)
		}
		if want.err != "" {
			require.EqualError(t, err, want.err, text)
			continue
		}
		require.NoError(t, err, text)
		assert.Equal(t, want.value, got, text)
	}
}

func TestBudget(t *testing.T) {
	in := input()
	field, call := compiled(t, "claim.spec.int", Number), compiled(t, "claim.spec.int + 1", Number)
	for _, e := range []*Expression{field, call} {
		budget := Budget{plenty}
		_, err := e.Number(in, &budget)
		require.NoError(t, err)
		cost := plenty - budget.Left
		assert.Greater(t, cost, uint64(callCost), "An evaluation should cost more than the call.")

		budget = Budget{cost}
		_, err = e.Number(in, &budget)
		require.NoError(t, err)
		assert.Zero(t, budget.Left)
		_, err = e.Number(in, &budget)
		require.ErrorIs(t, err, ErrBudget, "We should stop at the budget.")

		budget = Budget{cost - 1}
		_, err = e.Number(in, &budget)
		require.ErrorIs(t, err, ErrBudget)
		assert.Zero(t, budget.Left, "We should not go on with something cheaper.")
	}

	in.Claim.(map[string]any)["spec"].(map[string]any)["list"] = make([]any, 1000)
	for _, text := range []string{
		"claim.spec.list.all(a, claim.spec.list.all(b, claim.spec.list.all(c, true)))",
		"claim.spec.list.map(a, claim.spec.long + claim.spec.long + claim.spec.long)",
		"claim.spec.list.all(a, claim.spec.long.matches('(a*)*b') || true)",
		"claim.spec.list.all(a, !(1 in claim.spec.list))",
		"claim.spec.list.all(a, claim.spec.list.indexOf('a') < 0)",
		"claim.spec.list.all(a, [claim.spec.list] == [claim.spec.list])",
		"claim.spec.list.map(a, '%s%s%s'.format([claim.spec.long, claim.spec.long, claim.spec.long]))",
	} {
		budget := Budget{math.MaxUint64}
		_, err := compiled(t, text, anything).Value(in, &budget)
		require.ErrorIs(t, err, ErrBudget, "One evaluation should not cost all there is: %s", text)
		assert.Greater(t, budget.Left, math.MaxUint64-uint64(2*maxCost)-100_000)
	}
}

// TestOneCall has no call take seconds before its cost is known.
func TestOneCall(t *testing.T) {
	began := time.Now()
	_, err := compiled(t, "sets.contains(claim.spec.long.split(''), claim.spec.long.split(''))", Bool).Bool(input(), &Budget{plenty})
	require.ErrorIs(t, err, ErrBudget)
	_, err = compiled(t, "quantity('1e-' + '999999999') == quantity('1')", Bool).Bool(input(), &Budget{plenty})
	require.Error(t, err)
	assert.Less(t, time.Since(began), 2*time.Second)
}

func TestSaw(t *testing.T) {
	e, err := Compile("has(claim.spec.nope) || claim.spec.map.a == 1 || claim.spec.long == class.spec.text || related.plan.spec.long == 'a' || "+
		"related.other.a == 1 || "+
		"class.spec.price == 1 || claim.spec.nil == claim.spec.list || request.userInfo.username == 'a' || claim.spec.text.b['c/d'] == 1 || class.spec.none == 2",
		Bool, Scope{Variables: variables, Related: []string{"plan", "other"}})
	require.NoError(t, err)
	assert.Equal(t, []Saw{
		{"claim.spec.list", `["x","y"]`},
		{"claim.spec.long", `"` + strings.Repeat("a", 96) + "..."},
		{"claim.spec.map.a", "2"},
		{"claim.spec.nil", "null"},
		{"claim.spec.nope", "absent"},
		{`claim.spec.text.b["c/d"]`, "absent"},
		{"class.spec.none", "absent"},
		{"class.spec.price", "1.5"},
		{"class.spec.text", `"a"`},
		{"request.userInfo.username", "absent"},
		{"related.other.a", "absent"},
		{"related.plan.spec.long", "longer than 16 KiB or 1000 elements"},
	}, e.Saw(input()))
}

// TestConcurrent has several goroutines evaluate the same expression over the same object.
func TestConcurrent(t *testing.T) {
	e := compiled(t, "claim.spec.list.exists(x, x == class.spec.text || x == 'y') && class.spec.price > 1.0", Bool)
	in := input()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				mine := *in
				ok, err := e.Bool(&mine, &Budget{plenty})
				assert.True(t, ok && err == nil)
			}
		})
	}
	all.Wait()
}

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
	assert.True(t, ok, "We should distinguish null from absent.")
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
