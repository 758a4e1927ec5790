package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestOptional has claims that do without a class, and claims whose author gives a part of the reference.
func TestOptional(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	t.Run("DefaultIfAny", func(t *testing.T) {
		const group = "optional.test"
		w.register(t, group, "{selector: {whenAbsent: DefaultIfAny}, whenUnmatched: Deny}", class(group, "Class", "gold", "labels: {tier: gold}, "))
		stored, warned, err := w.create(t, manifestOf(t, unopinionated(group, "plain")))
		require.NoError(t, err, "We should let a claim pass that asks for nothing.")
		assert.Empty(t, classOf(stored))
		assert.Empty(t, warned, "We should tell nobody that a claim lacks what it does without.")
		selecting := unopinionated(group, "selecting")
		selecting.SetAnnotations(map[string]string{"classbind.io/class-selector": "tier=iron"})
		_, _, err = w.create(t, manifestOf(t, selecting))
		assert.True(t, apierrors.IsForbidden(err), "We should refuse a claim that asks for a class that is not there: %v", err)
	})

	t.Run("Company", func(t *testing.T) {
		const group = "company.test"
		w.resources(t, "Class classes."+group+" Cluster")
		w.apply(t, fmt.Sprintf(schemaOfClaims, group, "imageCatalogRef: {type: object, required: [kind, name, major], properties: "+
			"{apiGroup: {type: string}, kind: {type: string}, name: {type: string}, major: {type: integer}}}")+vendor(group)+
			claimKind("claims."+group, "{reference: {path: .spec.imageCatalogRef, form: TypedLocalObjectReference, whenEmpty: Bind, whenAbsent: LeaveAlone}}")+
			classKind("classes."+group, "{claimKinds: [{name: claims."+group+"}]}")+class(group, "Class", "usual", isDefault))
		w.awaitClasses(t, "classes."+group, 1)
		of := func(name, spec string) string {
			return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, name: %s}\nspec: %s\n", group, name, spec)
		}
		var stored *unstructured.Unstructured
		eventually(t, func(c *attempt) {
			var err error
			stored, _, err = w.create(t, of("begun", "{imageCatalogRef: {major: 16}}"), client.DryRunAll)
			require.NoError(c, err)
		}, "We should see the API server call us.")
		assert.Equal(t, map[string]any{"imageCatalogRef": map[string]any{"apiGroup": group, "kind": "Class", "name": "usual", "major": int64(16)}}, stored.Object["spec"],
			"We should add to what the author gave, and keep that.")
		stored, warned := w.warned(t, of("plain", "{}"))
		assert.Empty(t, stored.Object["spec"], "We should leave alone a claim without a catalog.")
		assert.Empty(t, warned)
		w.refuses(t, of("half", "{imageCatalogRef: {}}"), "spec.imageCatalogRef.major: Required value", "We should leave to the schema what an author forgot.")
	})

	t.Run("Precedence", func(t *testing.T) {
		const group = "precedence.test"
		w.resources(t, "Claim claims."+group+" Namespaced", "Runtime runtimes."+group+" Namespaced", "ClusterRuntime clusterruntimes."+group+" Cluster")
		w.apply(t, vendor(group)+claimKind("claims."+group, "{reference: {path: .spec.runtime, form: Name}, classes: {precedence: Listed, kinds: [{name: runtimes."+group+"}, {name: clusterruntimes."+group+"}]}}")+
			classKind("runtimes."+group, "{}")+classKind("clusterruntimes."+group, "{}")+
			class(group, "Runtime", "same", "namespace: default, labels: {of: namespace}, ")+
			class(group, "ClusterRuntime", "same", "labels: {of: cluster}, ")+class(group, "ClusterRuntime", "other", "labels: {of: cluster}, "))
		w.awaitClaims(t, "claims."+group)
		w.awaitClasses(t, "runtimes."+group, 1)
		w.awaitClasses(t, "clusterruntimes."+group, 2)
		for i := range 20 {
			for selector, want := range map[string]string{"of=cluster": "other", "of=namespace": "same"} {
				claim := unopinionated(group, fmt.Sprint("claim-", i))
				claim.SetAnnotations(map[string]string{"classbind.io/class-selector": selector})
				stored := w.created(t, manifestOf(t, claim), client.DryRunAll)
				got, _, _ := unstructured.NestedString(stored.Object, "spec", "runtime")
				require.Equal(t, want, got, "We should give no class whose name means another.")
			}
		}
	})
}
