package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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
		"Random": {
			reason:   "We should ignore weights",
			strategy: v1beta1.Random,
			weights:  map[string]int64{"as/none": 0, "as/one": 1, "bs/most": maxWeight},
			want:     map[string]Odds{"as/none": {1, 3}, "as/one": {1, 3}, "bs/most": {1, 3}},
		},
		"WeightedRandom": {
			reason: "We should be exact from the least weight to the greatest", strategy: v1beta1.WeightedRandom,
			weights: map[string]int64{"as/none": 0, "as/one": 1, "as/odd": 999_999, "bs/most": maxWeight},
			want:    map[string]Odds{"as/one": {1, 2_000_000}, "as/odd": {999_999, 2_000_000}, "bs/most": {maxWeight, 2_000_000}},
		},
		"HighestWeight": {
			reason:   "We should give nothing to what is lighter",
			strategy: v1beta1.HighestWeight,
			weights:  map[string]int64{"as/light": 1, "as/heavy": 5, "bs/heavy": 5, "cs/middle": 3},
			want:     map[string]Odds{"as/light": {0, 2}, "as/heavy": {1, 2}, "bs/heavy": {1, 2}, "cs/middle": {0, 2}},
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
	view := NewView(NewClaimKind(postgres()), []*inventory.Classes{inventory.NewClasses(kind, classes)})

	e := explain(view, claim.Claim{Name: "a", Selector: labels.SelectorFromSet(labels.Set{"tier": "golds"})}, 0)
	var got []string
	for _, m := range e.NearMisses {
		got = append(got, m.Class.Name)
	}
	assert.Equal(t, []string{"lacks", "other", "slip", "worse", "cordoned"}, got,
		"We should put last what would be dropped, and go by the class otherwise")
	require.NotNil(t, e.NearMisses[4].Drop)
	assert.Equal(t, "Cordoned", e.NearMisses[4].Drop.Reason, "We should say that the label alone would not help")
}
