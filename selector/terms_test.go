package selector

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
)

// TestTermsMeanTheWhole proves that a condition, taken apart at its conjunction, with an index and
// without, leaves the classes for which all of it is true.
func TestTermsMeanTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 2)) //nolint:gosec // It has to be reproducible.
	value := func() any {
		switch r.IntN(12) {
		case 0:
			return nil
		case 1:
			return true
		case 2:
			return "1"
		case 3:
			return float64(1)
		case 4:
			return 1.5
		case 5:
			return []any{int64(1), int64(2)}
		case 6:
			return map[string]any{"x": int64(1), "y": "a"}
		case 7:
			return map[string]any{"x": "a"}
		case 8:
			return "a"
		default:
			return int64(r.IntN(3))
		}
	}
	spec := func() map[string]any {
		m := map[string]any{}
		for _, n := range []string{"a", "b", "c"} {
			if r.IntN(4) > 0 {
				m[n] = value()
			}
		}
		return m
	}
	terms := []string{
		"class.spec.a == claim.spec.a", "claim.spec.b == class.spec.b", "class.spec.a.x == claim.spec.a",
		"class.spec.b == claim.spec.b.x", "has(class.spec.a)", "has(class.spec.a.x)",
		"class.spec.size() > 1", "class.spec.b != claim.spec.c", "class.spec.a in [1, 2]",
		"(class.spec.c == 'a' || class.spec.c == claim.spec.c)", "class.spec.c == null", "class.spec['c'] == (has(claim.spec.a) ? claim.spec.a : 'a')",
		"class.spec.?a.?x.orValue('a') == claim.spec.?b.orValue('a')", "class.spec.all(k, k in claim.spec)", "!(class.spec.a == claim.spec.a)",
		"class.spec.a == 1", "type(class.spec.a) == type(claim.spec.a)", "class.spec.a == claim.spec.c",
		"(class.spec.b == claim.spec.a && has(class.spec.b))", "class.spec.c == class.spec.a", "class.metadata.name != 'c1'",
		"class.spec.c == claim.spec['c'] // && false\n", "class.spec.b == '&&' + claim.spec.b", "'a' + class.spec.a == 'aa'",
		"class.spec.a == claim.spec.a + 0", "class.spec.a < claim.spec.a", "class.spec.a == double(claim.spec.b)",
		"class.metadata.labels[claim.spec.c] == 'yes'", "class.spec.a == [1, 2]", "class.spec.a == claim.spec.b == true",
	}
	found := 0
	for step := range 100 {
		var parts []string
		for range 1 + r.IntN(3) {
			parts = append(parts, terms[r.IntN(len(terms))])
		}
		text := strings.Join(parts, " && ")
		other := terms[r.IntN(len(terms))]
		whole, err := expression.Compile(text, expression.Bool, expression.Scope{Variables: []string{"claim", "class"}})
		require.NoError(t, err, text)
		w := newExpressive(fits(text, other+" || true")) // The other needs fields as a whole, or more of them.
		for i := range 8 {
			w.with(fmt.Sprintf("c%d", i), spec())
		}
		claim := all(spec())
		for _, w.indexed = range []bool{false, true} {
			view := w.view()
			require.Nil(t, view.Fault, text)
			in := view.Kind.Read("team", "db", map[string]any{"metadata": map[string]any{"name": "db"}, "spec": claim})
			d, err := new(Decider).Decide(t.Context(), view, in, Admit)
			require.NoError(t, err)
			if len(d.Claim.Problems) > 0 {
				continue // A term that does not look at the class fails.
			}
			var want, is []string
			for _, c := range view.All[0].All() {
				in := &expression.Input{Claim: map[string]any{"spec": claim}, Class: c.Fields}
				if ok, err := whole.Bool(in, &expression.Budget{Left: math.MaxUint64}); ok && err == nil {
					want = append(want, c.Name)
				}
			}
			view.each(d.subject(), func(c *inventory.Class) {
				if i, _ := view.Kind.firstDrop(d.subject(), c); i < 0 {
					is = append(is, c.Name)
				}
			})
			found += len(is)
			require.ElementsMatch(t, want, is, "%d: %s of %v", step, text, claim)
			e, err := new(Decider).Explain(t.Context(), view, in)
			require.NoError(t, err)
			require.Len(t, e.Candidates, len(is))
			require.Len(t, e.Dropped, len(w.classes)-len(is), "We should say why each of the others does not fit (%s)", text)
		}
	}
	require.Greater(t, found, 100)
}
