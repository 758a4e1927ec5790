package selector

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

func TestExplainOdds(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		strategy v1beta1.Strategy
		weights  map[string]int64
		want     map[string]Odds
	}{
		"Random": {reason: "We should ignore weights", strategy: v1beta1.Random, weights: map[string]int64{"as/none": 0, "as/one": 1, "bs/most": maxWeight}, want: map[string]Odds{"as/none": {1, 3}, "as/one": {1, 3}, "bs/most": {1, 3}}},
		"WeightedRandom": {
			reason: "We should be exact from the least weight to the greatest", strategy: v1beta1.WeightedRandom,
			weights: map[string]int64{"as/none": 0, "as/one": 1, "as/odd": 999_999, "bs/most": maxWeight},
			want:    map[string]Odds{"as/one": {1, 2_000_000}, "as/odd": {999_999, 2_000_000}, "bs/most": {maxWeight, 2_000_000}},
		},
		"HighestWeight": {
			reason: "We should give nothing to what is lighter", strategy: v1beta1.HighestWeight, weights: map[string]int64{"as/light": 1, "as/heavy": 5, "bs/heavy": 5, "cs/middle": 3},
			want: map[string]Odds{"as/light": {0, 2}, "as/heavy": {1, 2}, "bs/heavy": {1, 2}, "cs/middle": {0, 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			k.Spec.Choice.Strategy = tc.strategy
			got := map[string]Odds{}
			for _, c := range explain(weighed(k, tc.weights), nthClaim(0), 0).Candidates {
				got[c.Class.String()] = c.Odds
			}
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}

	t.Run("EveryWeight", func(t *testing.T) {
		kind := NewClaimKind(postgres())
		for weight := int64(1); weight <= maxWeight; weight++ {
			one := Explanation{Decision: Decision{View: &View{Kind: kind}}, Candidates: []Candidate{{Class: &inventory.Class{Weight: weight}}}}
			one.setOdds()
			require.Equal(t, Odds{weight, weight}, one.Candidates[0].Odds, "We should read every weight from the draw as it is")
		}
	})
	t.Run("Depends", func(t *testing.T) {
		k := postgres()
		view := weighed(k, map[string]int64{"as/one": 1, "as/two": 1})
		view.Kind.Strategy.Depends = "the weather"
		e := explain(view, nthClaim(0), 0)
		assert.False(t, e.Reproducible, "We should promise nothing of a draw that depends on more")
		for _, c := range e.Candidates {
			assert.Zero(t, c.Odds, "We should make up no odds")
		}
	})
}

func TestExplainNearest(t *testing.T) {
	kind := newKind("as.example.org", "A")
	var classes []*inventory.Class
	for name, set := range map[string]map[string]string{
		"other": {"tier": "bronze"}, "slip": {"tier": "gold"}, "lacks": {}, "worse": {"tier": "cold"},
	} {
		classes = append(classes, kind.NewClass(&metav1.ObjectMeta{Name: name, Labels: set}, nil))
	}
	classes = append(classes, kind.NewClass(&metav1.ObjectMeta{
		Name: "cordoned", Labels: map[string]string{"tier": "gold"}, Annotations: map[string]string{v1beta1.CordonedAnnotation: "true"},
	}, nil))
	view := newView(NewClaimKind(postgres()), []*inventory.Classes{inventory.NewClasses(kind, classes)})

	e := explain(view, claim.Claim{Name: "a", Selector: labels.SelectorFromSet(labels.Set{"tier": "golds"})}, 0)
	var got []string
	for _, m := range e.NearMisses {
		got = append(got, m.Class.Name)
	}
	assert.Equal(t, []string{"slip", "worse", "other", "lacks", "cordoned"}, got,
		"We should put the value that is spelt most alike first, then those without the label, and last those that would be dropped")
	require.NotNil(t, e.NearMisses[4].Drop)
	assert.Equal(t, "Cordoned", e.NearMisses[4].Drop.Reason, "We should say that the label alone would not help")
}

// generator of claims and classes of any shape, which often match.
type generator struct{ *rand.Rand }

func (g generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func (g generator) view() *View {
	k := postgres()
	k.Spec.Choice.Strategy = v1beta1.Strategy(g.one(string(v1beta1.Random), string(v1beta1.WeightedRandom), string(v1beta1.HighestWeight)))
	k.Spec.Classes.Namespaces.From = v1beta1.ClassNamespacesFrom(g.one(string(v1beta1.FromSameAsClaim), string(v1beta1.FromSameAsClaim), string(v1beta1.FromAll), string(v1beta1.FromNames)))
	if k.Spec.Classes.Namespaces.From == v1beta1.FromNames {
		k.Spec.Classes.Namespaces.Names = []v1beta1.NamespaceName{"other", "third"}
	}
	if g.oneIn(4) {
		k.Spec.Choice.Seed = v1beta1.SeedRequest
	}
	var offered []*inventory.Classes
	for n := range g.IntN(4) {
		ck := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("k%ds.example.org", n)}, Spec: crossplaneClassKind()}
		kind := inventory.NewClassKind(ck, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: fmt.Sprintf("K%d", n)}, g.oneIn(2))
		var classes []*inventory.Class
		for c := range g.IntN(8) {
			m := &metav1.ObjectMeta{Name: fmt.Sprintf("class-%d", c), Labels: map[string]string{}, Annotations: map[string]string{}}
			if kind.Namespaced {
				m.Namespace = g.one("team", "team", "other", "third")
			}
			for _, key := range []string{"tier", "region", "size"} {
				if !g.oneIn(5) {
					m.Labels[key] = g.one("1", "2", "3")
				}
			}
			if !g.oneIn(2) {
				m.Annotations[weightAnnotation] = g.one("0", "1", "5", "5", "1000000", "much")
			}
			if g.oneIn(3) {
				m.Annotations[defaultAnnotation] = "true"
			}
			if g.oneIn(6) {
				m.Annotations[v1beta1.CordonedAnnotation] = "true"
			}
			if g.oneIn(20) {
				for i := range v1beta1.MaxClassLabels {
					m.Labels[fmt.Sprint("more-", i)] = ""
				}
				m.Labels["one-more"] = ""
			}
			if g.oneIn(10) {
				m.DeletionTimestamp = &metav1.Time{}
			}
			classes = append(classes, kind.NewClass(m, nil))
		}
		offered = append(offered, inventory.NewClasses(kind, classes))
	}
	return newView(NewClaimKind(k), offered)
}

func (g generator) claim() claim.Claim {
	c := claim.Claim{Namespace: "team", Name: fmt.Sprintf("claim-%d", g.IntN(1000))}
	if g.oneIn(5) {
		c.Name = ""
	}
	if g.oneIn(5) {
		c.Namespace = ""
	}
	if g.oneIn(3) {
		return c
	}
	c.Selector = labels.NewSelector() // {} asks for every class.
	for range g.IntN(4) {
		requirement, err := labels.ParseToRequirements(g.one("tier", "region", "size") +
			g.one("=1", "=2", "==3", "!=1", " in (1,2)", " in (2,3)", " notin (1)", " notin (2,3)", "", ">1", "<3", "=4"))
		if err == nil {
			c.Selector = c.Selector.Add(requirement...)
		}
	}
	if g.oneIn(10) {
		if r, err := labels.ParseToRequirements("!" + g.one("tier", "region")); err == nil {
			c.Selector = c.Selector.Add(r...)
		}
	}
	return c
}
