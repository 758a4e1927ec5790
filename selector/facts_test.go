package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestNamesOfRelated that fail are names of no object only if an object is absent.
func TestNamesOfRelated(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		second  v1beta1.Expression
		problem string
	}{
		"Absent": {reason: "The object should be absent with the one that names it.", second: "related.first.spec.second"},
		"Claim": {
			reason: "We should refuse a claim whose field is missing, whatever else is absent.",
			second: "has(related.first) ? related.first.spec.second : claim.spec.second", problem: "no such key: second",
		},
		"Type": {reason: "We should refuse what is no name.", second: "has(related.first) ? 'a' : claim.spec.number", problem: "must be a text, is of type int"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Classes.Related = []v1beta1.Related{
					{Name: "first", Resource: "firsts.example.org", NameExpression: "claim.spec.first"},
					{Name: "second", Resource: "seconds.example.org", NameExpression: tc.second},
				}
				s.Classes.Fits = []v1beta1.Fit{{Name: "First", Expression: "!has(related.second)"}}
			})
			d, err := e.with("a", nil).decide(t, all(map[string]any{"first": "a", "number": int64(1)}))
			require.NoError(t, err)
			if tc.problem == "" {
				require.Empty(t, d.Claim.Problems, tc.reason)
				assert.NotNil(t, d.Class, tc.reason)
				return
			}
			require.NotEmpty(t, d.Claim.Problems, tc.reason)
			assert.Contains(t, d.Claim.Problems[0].Error(), tc.problem, tc.reason)
		})
	}
}
