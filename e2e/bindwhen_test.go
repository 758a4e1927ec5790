package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestBindWhen has claims that are not to be bound, or not yet, and claims that are to be bound although they have a reference.
func TestBindWhen(t *testing.T) {
	t.Parallel()
	w, asks := sharedReplica(t)
	register := func(t *testing.T, group, spec string) {
		w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster")
		w.apply(t, lateVendor(group)+claimKind("claims."+group, spec)+classKind("classes."+group, "{claimKinds: [{name: claims."+group+"}]}")+class(group, "Class", "only", ""))
		w.awaitClasses(t, "classes."+group, 1)
	}
	manifest := func(group, name, metadata, spec string) string {
		return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, name: %s%s}\nspec: {classSelector: {}%s}\n", group, name, metadata, spec)
	}
	// asked waits until the API server calls us for a claim that is to be bound, and left until we leave it alone.
	asked := func(t *testing.T, manifest string) { w.awaitBound(t, manifest, "Class/only", "") }
	left := func(t *testing.T, manifest string) { w.awaitBound(t, manifest, "", "") }
	// after a change, a claim is bound.
	after := func(t *testing.T, manifest string, change func()) {
		claim, warnings := w.warned(t, manifest)
		assert.Empty(t, warnings, "We should not warn of what is meant to be.")
		assert.Never(t, func() bool {
			return w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) != nil || classOf(claim) != ""
		}, time.Second, 100*time.Millisecond, "We should not bind it yet.")
		change()
		begin := time.Now()
		require.Eventually(t, func() bool {
			return w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) == nil && classOf(claim) != ""
		}, patience, 5*time.Millisecond)
		t.Logf("Bound after %s", time.Since(begin))
		events := &eventsv1.EventList{}
		require.NoError(t, w.List(t.Context(), events, client.InNamespace("default")))
		for _, e := range events.Items {
			assert.False(t, e.Regarding.UID == claim.GetUID() && e.Reason == v1beta1.EventNoMatchingClass, "We should tell nobody to look for a class: %s", e.Note)
		}
	}

	t.Run("Delayed", func(t *testing.T) {
		const group = "delayed.test"
		register(t, group, `{claims: {when: "has(claim.metadata.annotations) && 'delayed.test/node' in claim.metadata.annotations // set by the scheduler"}, whenUnmatched: BindLater}`)
		asked(t, manifest(group, "probe", ", annotations: {delayed.test/node: a}", ""))
		before := asks("claims." + group)
		after(t, manifest(group, "waits", "", ""), func() {
			require.NoError(t, w.annotate(t, "claims.delayed.test", "waits", "delayed.test/node=a"))
		})
		assert.Zero(t, asks("claims."+group)-before, "We should not be called for a claim that is not to be bound yet.")
	})

	t.Run("Related", func(t *testing.T) {
		const group = "related.test"
		w.resources(t, "Plan plans.related.test Namespaced")
		plan := func(ready bool) string {
			return fmt.Sprintf("---\napiVersion: related.test/v1\nkind: Plan\nmetadata: {namespace: default, name: small}\nspec: {ready: %t}\n", ready)
		}
		w.apply(t, plan(true))
		register(t, group, `{claims: {when: "has(related.plan) && related.plan.spec.ready"}, classes: {related: [{name: plan, resource: plans.related.test, nameExpression: claim.spec.plan}]}, whenUnmatched: BindLater}`)
		asked(t, manifest(group, "probe", "", ", plan: small"))
		w.apply(t, plan(false))
		left(t, manifest(group, "probe", "", ", plan: small"))
		after(t, manifest(group, "waits", "", ", plan: small"), func() { w.apply(t, plan(true)) })
		after(t, manifest(group, "absent", "", ", plan: large"), func() { w.apply(t, strings.ReplaceAll(plan(true), "small", "large")) })
		w.awaitWaiting(t, "claims.related.test", 0)
	})

	t.Run("Namespace", func(t *testing.T) {
		const group = "phase.test"
		w.kubectl(t, "create", "namespace", "phases")
		label := func(phase string) { w.kubectl(t, "label", "--overwrite", "namespace", "phases", "phase="+phase) }
		label("run")
		register(t, group, `{claims: {when: "has(namespace.metadata.labels.phase) && namespace.metadata.labels.phase == 'run'"}, whenUnmatched: BindLater}`)
		in := func(name string) string {
			return strings.Replace(manifest(group, name, "", ""), "default", "phases", 1)
		}
		asked(t, in("probe"))
		label("plan")
		left(t, in("probe"))
		after(t, in("waits"), func() { label("run") })
	})

	t.Run("Fails", func(t *testing.T) {
		const group = "fails.test"
		w.resources(t, "Claim claims.fails.test Namespaced", "Class classes.fails.test Cluster")
		w.apply(t, "apiVersion: fails.test/v1\nkind: Claim\nmetadata: {namespace: default, name: old}\nspec: {}\n")
		register(t, group, `{claims: {when: "claim.spec.ready"}}`)
		asked(t, manifest(group, "probe", "", ", ready: true"))
		_, _, err := w.create(t, manifest(group, "fails", "", ""))
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "object.spec.ready", "We should have the API server say which expression.")
		require.ErrorContains(t, err, "no such key: ready", "We should have the API server say why.")
		require.NoError(t, w.annotate(t, "claims.fails.test", "old", "a=b"))
		w.kubectl(t, "delete", "claims.fails.test", "old")
	})

	t.Run("Refused", func(t *testing.T) {
		const group = "refused.test"
		// To the API server, a request is no map.
		register(t, group, `{claims: {when: "claim.spec.ready && request['userInfo'].username != 'nobody'"}}`)
		asked(t, manifest(group, "probe", "", ", ready: true"))
		before := asks("claims." + group)
		w.binds(t, manifest(group, "early", "", ", ready: false"), "", "")
		assert.Equal(t, 1, asks("claims."+group)-before, "We should evaluate it where the API server does not.")
		w.apply(t, claimKind("claims.refused.test", "{}"))
		asked(t, strings.Replace(manifest(group, "other", "", ""), "ready", "other", 1))
		asked(t, manifest("delayed.test", "probe", ", annotations: {delayed.test/node: a}", ""))
	})
}
