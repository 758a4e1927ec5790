package claim

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestNamespaces holds the rule of the webhook configuration, as the API server applies
// it, against the one that late binding and explain apply.
func TestNamespaces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It has to be reproducible.
	values := []v1beta1.LabelValue{"a", "b", ""}
	for range 500 {
		s := v1beta1.LabelSelector{}
		if random.IntN(2) == 0 {
			s.MatchLabels = map[string]v1beta1.LabelValue{"team": values[random.IntN(3)]}
		}
		if random.IntN(2) == 0 {
			s.MatchExpressions = []v1beta1.LabelSelectorRequirement{{Key: "env", Operator: "NotIn", Values: values[:1+random.IntN(2)]}}
		}
		namespaces, err := NewNamespaces(s, "classbind-system")
		require.NoError(t, err)
		entry, err := metav1.LabelSelectorAsSelector(NamespaceSelector(s, "classbind-system"))
		require.NoError(t, err)
		for _, name := range []string{"kube-system", "classbind-system", "team-a"} {
			set := labels.Set{"kubernetes.io/metadata.name": name}
			for _, key := range []string{"team", "env"} {
				if random.IntN(2) == 0 {
					set[key] = string(values[random.IntN(3)])
				}
			}
			want := entry.Matches(set)
			assert.Equal(t, want, namespaces.Select(name, set), "%s %v %v", name, s, set)
			if selected, known := namespaces.Known(name); known {
				assert.Equal(t, want, selected)
			}
		}
		selected, known := namespaces.Known("")
		assert.True(t, selected && known, "We should bind claims of no namespace, as the API server asks us to.")
	}
	_, err := NewNamespaces(v1beta1.LabelSelector{
		MatchExpressions: []v1beta1.LabelSelectorRequirement{{Key: "-", Operator: "Exists"}},
	}, "classbind-system")
	require.ErrorContains(t, err, "spec.claims.namespaceSelector")
	later := v1beta1.LabelSelector{
		MatchExpressions: []v1beta1.LabelSelectorRequirement{{Key: "env", Operator: "Matches"}, {Key: "team", Operator: "Exists"}},
	}
	assert.Len(t, NamespaceSelector(later, "classbind-system").MatchExpressions, 2, "We should leave out what the API server may not know.")
}
