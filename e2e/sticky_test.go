package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestSticky has claims that are bound to the class first, which then matches them no more,
// and updates that leave their reference out.
func TestSticky(t *testing.T) {
	long(t)
	t.Parallel()
	w := newWorld(t, controlplane.Options{Audit: true})
	r := w.serve(t)
	for group, spec := range map[string]string{
		"admit.test": "{}", "later.test": "{whenUnmatched: BindLater}", "allow.test": "{onUnbind: Allow}", "moving.test": "{onUnbind: Allow, whenUnmatched: BindLater}",
	} {
		w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster")
		w.apply(t, lateVendor(group)+claimKind("claims."+group, spec)+classKind("classes."+group, "{claimKinds: [claims."+group+"]}")+
			class(group, "Class", "first", "labels: {tier: gold}, "))
		w.awaitClaims(t, "claims."+group)
		w.awaitClasses(t, "classes."+group, 1)
	}
	// asking is the file of a claim, without a reference.
	asking := func(group, name, more string) string {
		return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, name: %s}\nspec: {classSelector: {matchLabels: {tier: gold}}%s}\n", group, name, more)
	}
	// bound is a claim that has the class first, which matches it no more: the class second does.
	bound := func(t *testing.T, group, name string) *unstructured.Unstructured {
		t.Helper()
		w.apply(t, class(group, "Class", "first", "labels: {tier: gold}, ")+class(group, "Class", "second", "labels: {tier: silver}, "))
		w.awaitClasses(t, "classes."+group, 2)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			dry, _, err := w.create(t, asking(group, name, ""), client.DryRunAll)
			require.NoError(c, err)
			require.Equal(c, "Class/first", classOf(dry))
		}, patience, 20*time.Millisecond)
		claim, _, err := w.create(t, asking(group, name, ""))
		require.NoError(t, err)
		require.Equal(t, "Class/first", classOf(claim))
		w.apply(t, class(group, "Class", "first", "labels: {tier: silver}, ")+class(group, "Class", "second", "labels: {tier: gold}, "))
		return claim
	}
	replaced := func(t *testing.T, manifest string) (class, warning string) {
		t.Helper()
		_, warning, err := w.Kubectl(t.Context(), strings.NewReader(manifest), "replace", "-f", "-")
		require.NoError(t, err)
		claim := &unstructured.Unstructured{}
		require.NoError(t, w.read(t, manifest, claim))
		return classOf(claim), warning
	}

	for group, reason := range map[string]string{
		"admit.test": "We should keep a claim bound that is replaced by its file.",
		"later.test": "We should not move a claim to another class that is replaced by its file.",
	} {
		t.Run("Replace/"+group, func(t *testing.T) {
			bound(t, group, "replaced")
			before := calls(t, r)
			class, warning := replaced(t, asking(group, "replaced", ", size: 2"))
			assert.Equal(t, "Class/first", class, reason)
			assert.Contains(t, warning, `keeps it (class "first")`, "We should tell the author.")
			assert.Equal(t, 1, calls(t, r)-before, "We should be called once for it.")
			assert.Never(t, func() bool {
				claim := &unstructured.Unstructured{}
				return w.read(t, asking(group, "replaced", ""), claim) != nil || classOf(claim) != "Class/first"
			}, time.Second, 100*time.Millisecond, "We should not bind it later, either.")
		})
	}

	t.Run("Provisioned", func(t *testing.T) {
		claim := bound(t, "later.test", "provisioned")
		require.NoError(t, unstructured.SetNestedField(claim.Object, "a", "spec", "resourceRef", "name"))
		require.NoError(t, w.Update(t.Context(), claim))
		unstructured.RemoveNestedField(claim.Object, "spec", "classRef")
		require.NoError(t, w.Update(t.Context(), claim))
		assert.Equal(t, "Class/first", classOf(claim), "We should keep a claim bound to which its controller has given a resource.")
	})

	t.Run("OtherUpdates", func(t *testing.T) {
		claim := bound(t, "admit.test", "updated")
		before := calls(t, r)
		claim.SetLabels(map[string]string{"a": "b"})
		require.NoError(t, w.Update(t.Context(), claim))
		require.NoError(t, unstructured.SetNestedField(claim.Object, map[string]any{"kind": "Class", "name": "second"}, "spec", "classRef"))
		require.NoError(t, w.Update(t.Context(), claim))
		assert.Equal(t, "Class/second", classOf(claim), "We should allow another class.")
		claim.SetFinalizers([]string{"sticky.test/wait"})
		require.NoError(t, w.Update(t.Context(), claim))
		require.NoError(t, w.Delete(t.Context(), claim))
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		unstructured.RemoveNestedField(claim.Object, "spec", "classRef")
		claim.SetFinalizers(nil)
		require.NoError(t, w.Update(t.Context(), claim))
		assert.Equal(t, before, calls(t, r), "We should not be called for updates that unbind no claim, nor for a claim that is being deleted.")
	})

	t.Run("Audited", func(t *testing.T) {
		assert.Equal(t, map[string]string{"replaced": "Restored"}, w.auditedUpdates(t, "admit.test"), "We should be called for the update that unbinds a claim, and for no other.")
	})

	t.Run("DryRun", func(t *testing.T) {
		claim := bound(t, "admit.test", "tried")
		unstructured.RemoveNestedField(claim.Object, "spec", "classRef")
		require.NoError(t, w.Update(t.Context(), claim, client.DryRunAll))
		assert.Equal(t, "Class/first", classOf(claim), "We should answer a dry run alike.")
	})

	t.Run("ServerSideApply", func(t *testing.T) {
		const explicit = ", classRef: {apiVersion: admit.test/v1, kind: Class, name: mine}"
		apply := func(manifest string) *unstructured.Unstructured {
			_, _, err := w.Kubectl(t.Context(), strings.NewReader(manifest), "apply", "--server-side", "--field-manager=author", "-f", "-")
			require.NoError(t, err, "We should cause no conflict.")
			claim := &unstructured.Unstructured{}
			require.NoError(t, w.read(t, manifest, claim))
			return claim
		}
		before := apply(asking("admit.test", "applied", explicit))
		require.Equal(t, "Class/mine", classOf(before))
		first := apply(asking("admit.test", "applied", ""))
		assert.Equal(t, "Class/mine", classOf(first), "We should keep a claim bound whose author gives the field up.")
		second := apply(asking("admit.test", "applied", ""))
		assert.Equal(t, first.Object, second.Object, "We should have nothing change by another apply.")
	})

	t.Run("Allow", func(t *testing.T) {
		bound(t, "allow.test", "replaced")
		before := calls(t, r)
		class, warning := replaced(t, asking("allow.test", "replaced", ""))
		assert.Empty(t, class, "We should have an update unbind a claim where this is allowed.")
		assert.Empty(t, warning)
		assert.Equal(t, before, calls(t, r), "We should not be called for updates there.")
	})

	t.Run("AllowWithBindLater", func(t *testing.T) {
		bound(t, "moving.test", "replaced")
		replaced(t, asking("moving.test", "replaced", ""))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			claim := &unstructured.Unstructured{}
			require.NoError(c, w.read(t, asking("moving.test", "replaced", ""), claim))
			require.Equal(c, "Class/second", classOf(claim))
		}, patience, 50*time.Millisecond, "We should bind later what an update has unbound.")
	})
}

// read the object of a manifest as it is stored.
func (w *world) read(t *testing.T, manifest string, object *unstructured.Unstructured) error {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(manifest), &object.Object))
	return w.Get(t.Context(), client.ObjectKeyFromObject(object), object)
}

// auditedUpdates are the reasons that we have for the updates of claims, by their names. Only
// those for which the API server has called us have one.
func (w *world) auditedUpdates(t *testing.T, group string) map[string]string {
	t.Helper()
	reasons := map[string]string{}
	for _, e := range w.audited(t) {
		if reason, asked := e.Annotations["claims."+group+v1alpha1.BindSuffix+"/reason"]; asked && e.Verb != "create" {
			reasons[e.ObjectRef.Name] = reason
		}
	}
	return reasons
}
