package selector

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
)

// TestExpressionsAgreeLater has claims with fields of every sort decided on when they are
// created, and later from their Ask.
func TestExpressionsAgreeLater(t *testing.T) {
	worlds := map[string]func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec){
		"Fits":     fits("claim.spec.b >= class.spec.size", "!has(claim.spec.c) || claim.spec.c.size() > 0"),
		"Below":    fits("class.spec.size == 1 || has(claim.spec.c.a) || has(claim.spec.c.name)", "!has(claim.spec.b) || has(claim.spec.b.a)"),
		"Equality": fits("class.spec.size == claim.spec.b"),
		"Score": func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			s.Choice.Strategy, s.Choice.Score = v1beta1.HighestScore, "class.spec.price * double(claim.spec.b)"
		},
		"Selector": func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			s.Selector.Expression = "has(claim.spec.c) ? 'all=' + string(claim.spec.c) : claim.metadata.labels"
		},
		"Partition": func(s *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
			s.Classes.Partition = &v1beta1.Partition{Claim: "string(claim.spec.c)", Class: "class.spec.tier"}
			k.Default = v1beta1.Source{Expression: "class.spec.size > 0"}
		},
		"BindWhen": func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			s.Claims.When = "claim.spec.classRef.name == 'a'"
		},
		"ClassKind": func(_ *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
			k.Fits = []v1beta1.Fit{{Name: "Size", Expression: "claim.spec.b + 1 > class.spec.size"}}
		},
	}
	values := []string{`null`, `1`, `1.0`, `2`, `2.5`, `1e3`, `9007199254740993`, `"yes"`, `""`, `"é\u0022"`, `true`, `[]`, `[1,1.0]`, `{}`, `{"name":"a"}`}
	r := rand.New(rand.NewPCG(17, 5)) //nolint:gosec // It has to be reproducible.
	fields := func(names ...string) string {
		var all []string
		for _, name := range names {
			if r.IntN(4) > 0 {
				all = append(all, fmt.Sprintf("%q:%s", name, values[r.IntN(len(values))]))
			}
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	for name, change := range worlds {
		t.Run(name, func(t *testing.T) {
			world := newExpressive(change).with("a", map[string]any{"size": int64(1), "price": 0.5, "tier": "yes"}).
				with("b", map[string]any{"size": int64(2), "price": 1.5, "tier": ""}).with("c", map[string]any{"size": 2.5, "price": 1.0, "tier": "1"})
			view, decided := world.view(), map[string]int{}
			require.Nil(t, view.Fault)
			for range 1500 {
				spec := fields("b", "c", "classRef")
				if r.IntN(3) > 0 {
					spec = strings.Replace(spec, "{", `{"classSelector":{"matchLabels":{"all":"yes"}},`, 1)
					spec = strings.Replace(spec, ",}", "}", 1)
				}
				text := fmt.Sprintf(`{"metadata":{"name":"db","labels":{"all":%q}},"spec":%s}`, []string{"yes", "no"}[r.IntN(2)], spec)
				object, err := view.Kind.DecodeValid([]byte(text))
				require.NoError(t, err, text)
				in := view.Kind.Read("team", "db", object)
				if in.LeftAlone != "" || len(in.Problems) > 0 {
					continue
				}
				ask := view.Kind.Ask(in)
				now, err := new(Decider).Decide(t.Context(), view, in, Admit)
				require.NoError(t, err, text)
				waiting, err := ask.Claim("team", "db")
				require.NoError(t, err, text)
				later, err := new(Decider).Decide(t.Context(), view, claim.Intake{Claim: waiting, Parents: in.Parents}, Later)
				require.NoError(t, err, text)
				describe := func(d *Decision) string {
					return fmt.Sprint(d.Class, d.Candidates, d.DroppedText(), d.Reason(), d.Claim.Problems, d.Given())
				}
				decided[fmt.Sprint(now.Class)]++
				if strings.Contains(describe(&now), "is a list") && strings.Contains(describe(&later), "wrong type") {
					continue // Of a list, later says the same in other words.
				}
				if !assert.Equal(t, describe(&now), describe(&later), "%s: %s", text, ask) {
					return
				}
			}
			assert.Greater(t, len(decided), 1, "We should try claims that get different classes, or none: %v", decided)
		})
	}
}
