package expression

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/selector/fields"
)

var withLists = Scope{Variables: variables, Related: []string{"plan", "quotas"}, Lists: []string{"quotas"}}

// TestLooksAtLists holds of the elements of a list what loops look at.
func TestLooksAtLists(t *testing.T) {
	of := func(paths ...fields.Path) (all []fields.Path) {
		for _, p := range append(paths, fields.Path{"metadata", "name"}) {
			all = append(all, append(fields.Path{"quotas", fields.Element}, p...))
		}
		return tops(all)
	}
	for text, want := range map[string][]fields.Path{
		"related.quotas.all(q, q.spec.hard.pods != '0')":                                    of(fields.Path{"spec", "hard", "pods"}),
		"related['quotas'].exists(q, has(q.spec.hard))":                                     of(fields.Path{"spec", "hard"}),
		"related.quotas.exists_one(q, true)":                                                of(),
		"related.quotas.map(q, q.a == 1, q.b).size() == 0":                                  of(fields.Path{"a"}, fields.Path{"b"}),
		"related.quotas.all(q, q.a.all(q, q.b == 1))":                                       of(fields.Path{"a"}),
		"related.quotas.all(q, [1].all(x, q.?a[?class.b].orValue(x) == x))":                 of(fields.Path{"a"}),
		"related.quotas.all(q, related.quotas.all(r, q.a == r.b))":                          of(fields.Path{"a"}, fields.Path{"b"}),
		"related.quotas.all(q, q.metadata.labels.a == 'b') && related.quotas.all(q, q.c)":   of(fields.Path{"metadata", "labels", "a"}, fields.Path{"c"}),
		"related.quotas.all(related, related.a == 1 && [related.b].all(x, dyn(x) == true))": of(fields.Path{"a"}, fields.Path{"b"}),
	} {
		e, err := Compile(text, Bool, withLists)
		require.NoError(t, err, text)
		assert.Equal(t, want, e.Looks(Related), text)
	}
}

// TestListsThatAreHeld refuses what would look at more of a list than is known of it.
func TestListsThatAreHeld(t *testing.T) {
	const isList = "related.quotas is a list: go through it with all, exists, exists_one or map"
	for text, want := range map[string]string{
		"has(related.quotas)":                                   "line 1, column 5: " + isList,
		"related.quotas[0].a == 1":                              "line 1, column 1: " + isList,
		"related.quotas.spec == 1":                              "line 1, column 1: " + isList,
		"size(related.quotas) == 1":                             "line 1, column 6: " + isList,
		"related.?quotas.hasValue()":                            "line 1, column 1: " + isList,
		"[related.quotas].all(q, true)":                         "line 1, column 2: " + isList,
		"related.quotas.all(q, q == 1)":                         "line 1, column 23: name a field of q, such as q.metadata.name",
		"related.quotas.filter(q, q.a == 1).all(q, true)":       "line 1, column 23: name a field of q, such as q.metadata.name",
		"related.quotas.all(q, q['a' + 'b'])":                   "line 1, column 23: name a field of q, such as q.metadata.name",
		"related.quotas.map(q, q).all(q, q.metadata.name == 1)": "line 1, column 23: name a field of q, such as q.metadata.name",
	} {
		_, err := Compile(text, Bool, withLists)
		require.Error(t, err, text)
		assert.Equal(t, want, err.Error(), text)
	}
}

// TestEvaluateLists goes through the objects of a list, each as it is held.
func TestEvaluateLists(t *testing.T) {
	held := NewFields(fields.Path{"spec", "hard"}, fields.Path{"metadata", "name"})
	quota := func(name, pods string) any {
		return held.Project(map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"hard": map[string]any{"pods": pods}}})
	}
	in := input()
	in.Related["quotas"] = []any{quota("a", "1"), quota("b", "0"), held.Project(map[string]any{"metadata": map[string]any{"name": "c"}})}
	for text, want := range map[string]any{
		"related.quotas.map(q, q.metadata.name)":                                          []any{"a", "b", "c"},
		"related.quotas.all(q, q.spec.?hard.pods.orValue('1') != '0')":                    false,
		"related.quotas.exists(q, q.?spec.hard.pods.orValue('') == '1')":                  true,
		"related.quotas.exists_one(q, has(q.spec) && q.spec.hard.pods == '0')":            true,
		"related.quotas.map(q, has(q.spec), int(q.spec.hard.pods)).exists(n, n > 0)":      true,
		"related.quotas.map(q, has(q.spec), q.metadata.name + '=' + q.spec.hard['pods'])": []any{"a=1", "b=0"},
	} {
		e, err := Compile(text, anything, withLists)
		require.NoError(t, err, text)
		got, err := e.Value(in, &Budget{plenty})
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	e, err := Compile("related.quotas.all(q, q.spec.hard.pods != '0')", Bool, withLists)
	require.NoError(t, err)
	assert.Equal(t, []Saw{
		{"related.quotas[].metadata.name", `["a","b","c"]`}, {"related.quotas[].spec.hard.pods", `["1","0"]`},
	}, e.Saw(in), "We should show what each element has.")
	assert.Greater(t, Length(in.Related["quotas"]), Length([]any{"a", "b", "c"}), "What is held of a list should count.")
}
