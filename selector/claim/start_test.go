package claim

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestStopsStart over all resources that a cluster needs to come up, which the documents list, too.
func TestStopsStart(t *testing.T) {
	page, err := os.ReadFile("../../docs/register-kinds.md")
	require.NoError(t, err)
	notIn := func(key, namespace string) v1beta1.LabelSelector {
		return v1beta1.LabelSelector{MatchExpressions: []v1beta1.LabelSelectorRequirement{
			{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []v1beta1.LabelValue{v1beta1.LabelValue(namespace)}},
		}}
	}
	resources := map[string]bool{}
	for resource, why := range NeededToStart {
		resources[resource] = resource != csiDrivers
		assert.Contains(t, string(page), "| `"+resource+"` | "+why+" |", "We should list it in the documents.")
	}
	for _, group := range PluginGroups {
		resources["ippools."+group] = false
		assert.Contains(t, string(page), "`"+group+"`", "We should list it in the documents.")
	}
	for resource, namespaced := range resources {
		for name, tc := range map[string]struct {
			reason string
			change func(*v1beta1.ClaimKindSpec)
			stops  bool
		}{
			"Defaults": {"We should say that a cluster may not come up.", func(*v1beta1.ClaimKindSpec) {}, true},
			"Ignore":   {"We should know that its claims are created without us.", func(s *v1beta1.ClaimKindSpec) { s.Admission.FailurePolicy = v1beta1.Ignore }, false},
			"Selected": {"We should know that those of plugins are left alone.", func(s *v1beta1.ClaimKindSpec) {
				s.Claims.NamespaceSelector.MatchLabels = map[string]v1beta1.LabelValue{"team": "a"}
			}, !namespaced},
			"Excluded": {"We should trust who excludes the namespace of a plugin.", func(s *v1beta1.ClaimKindSpec) {
				s.Claims.NamespaceSelector = notIn("kubernetes.io/metadata.name", "kube-flannel")
			}, !namespaced},
			"Unrelated": {
				"We should see that a selector excludes no plugin.",
				func(s *v1beta1.ClaimKindSpec) { s.Claims.NamespaceSelector = notIn("env", "dev") }, true,
			},
		} {
			k := &v1beta1.ClaimKind{
				ObjectMeta: metav1.ObjectMeta{Name: resource},
				Spec:       v1beta1.ClaimKindSpec{Admission: v1beta1.Admission{FailurePolicy: v1beta1.Fail}},
			}
			tc.change(&k.Spec)
			why := StopsStart(k)
			assert.Equal(t, tc.stops, why != "", "%s %s (%s): %s", tc.reason, resource, name, why)
			assert.True(t, !tc.stops || strings.Contains(why, "needs "+resource) && strings.Contains(why, "failurePolicy to Ignore"), why)
		}
	}
	assert.Empty(t, StopsStart(&v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}}), "We should say nothing of others.")
}
