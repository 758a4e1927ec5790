package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTenants has an author of classes in one namespace who wants the claims of another.
func TestTenants(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const group, kind, classes = "tenants.test", "clusters.tenants.test", "clusterclasses.tenants.test"
	const reference = "reference: {path: .spec.topology.classRef, form: NamespacedReference}"
	theirs := func(name string) string {
		return class(group, "ClusterClass", name, "namespace: mallory, labels: {tier: gold, bait: 'yes'}, "+
			"annotations: {resourceclass.crossplane.io/weight: '1000000', "+defaultMark+": 'true'}, ")
	}
	w.resources(t, "Cluster "+kind+" Namespaced", "ClusterClass "+classes+" Namespaced")
	w.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: mallory}\n"+vendor(group)+
		claimKind(kind, "{"+reference+"}")+classKind(classes, "{claimKinds: ["+kind+"]}")+
		class(group, "ClusterClass", "own", "namespace: default, labels: {tier: gold}, annotations: {"+defaultMark+": 'true'}, ")+theirs("theirs"))
	w.awaitClaims(t, kind)
	w.awaitClasses(t, classes, 2)
	create := func(name, selector string) (class string, warnings []string) {
		t.Helper()
		metadata := ""
		if selector != "" {
			metadata = fmt.Sprintf(", annotations: {classbind.io/class-selector: %s}", selector)
		}
		bound, warnings, err := w.create(t, fmt.Sprintf("apiVersion: %s/v1\nkind: Cluster\nmetadata: {namespace: default, name: %s%s}\nspec: {topology: {}}\n",
			group, name, metadata), client.DryRunAll)
		require.NoError(t, err)
		to, _, _ := unstructured.NestedStringMap(bound.Object, "spec", "topology", "classRef")
		return strings.Trim(to["namespace"]+"/"+to["name"], "/"), warnings
	}

	for i := range 50 {
		class, _ := create(fmt.Sprintf("selects-%d", i), "tier=gold")
		require.Equal(t, "default/own", class, "We should offer a claim the classes of its own namespace, whatever others weigh.")
	}
	class, _ := create("asks-for-nothing", "")
	assert.Equal(t, "default/own", class, "We should guarantee each namespace a default of its own.")
	class, warnings := create("takes-the-bait", "bait=yes")
	assert.Empty(t, class)
	require.Len(t, warnings, 1)
	assert.NotContains(t, warnings[0], "mallory", "We should not name what the author of the claim cannot get.")
	require.EventuallyWithT(t, func(c *assert.CollectT) { // The entries for claims and for classes are written one after the other.
		_, _, err := w.create(t, strings.TrimPrefix(theirs("second"), "---\n"), client.DryRunAll)
		require.True(c, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(c, err, "theirs")
	}, patience, 50*time.Millisecond, "We should guarantee one default in each namespace.")

	w.apply(t, claimKind(kind, "{"+reference+", classNamespaces: {from: All}}"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		class, _ := create("trusts-all", "bait=yes")
		require.Equal(c, "mallory/theirs", class)
	}, patience, 100*time.Millisecond, "We should offer the classes of all namespaces where the ClaimKind says so.")
}
