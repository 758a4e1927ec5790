package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/load"
)

func (w *world) awaitWaiting(t *testing.T, claimKind string, n int) {
	k := &v1beta1.ClaimKind{}
	require.EventuallyWithT(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: claimKind}, k))
		require.NotNil(c, k.Status.WaitingClaims, "%v", k.Status.Conditions)
		require.EqualValues(c, n, *k.Status.WaitingClaims)
	}, 5*patience, 50*time.Millisecond)
	assert.True(t, meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionLateBinding), "%v", k.Status.Conditions)
}

// boundOnce checks that each claim of a group was written twice: when it was created, and when it was bound.
func (w *world) boundOnce(t *testing.T, group string, n int) {
	claims := w.claimsOf(t, group)
	assert.Len(t, claims, n)
	unbound, rewritten := 0, 0
	for i := range claims {
		if classOf(&claims[i]) == "" {
			unbound++
		}
		if claims[i].GetGeneration() != 2 {
			rewritten++
		}
	}
	assert.Zero(t, unbound, "We should bind every claim.")
	assert.Zero(t, rewritten, "We should write no claim twice.")
}

// TestLateBinding has two hundred claims wait for one class, while others are created.
func TestLateBinding(t *testing.T) {
	const group, kind, claims = "late.test", "claims.late.test", 200
	notInPods(t, "Claims are bound at a lower rate there.")
	w := sharedWorld(t)
	w.register(t, group, "{whenUnmatched: BindLater}", class(group, "Class", "ready", "labels: {tier: ready}, "))
	w.namespaces(t, "late-load")

	_, warnings := w.warned(t, claimWith(group, "warned", "{classSelector: {matchLabels: {tier: gold}}}"))
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "it will be bound when a class matches")
	w.createMany(t, group, claims-1)
	w.awaitWaiting(t, kind, claims)
	// told waits for so many events.
	told := func(n int, reason string, is func(e eventsv1.Event) bool) {
		events := &eventsv1.EventList{}
		assert.EventuallyWithT(t, func(c *attempt) {
			require.NoError(c, w.List(t.Context(), events, client.InNamespace("default")))
			require.Len(c, slices.DeleteFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.APIVersion != group+"/v1" || !is(e) }), n)
		}, 2*patience, 200*time.Millisecond, reason)
	}
	told(1, "We should say that a claim waits, and for what.", func(e eventsv1.Event) bool {
		return e.Reason == v1beta1.EventNoMatchingClass && e.Regarding.Name == "warned" && strings.Contains(e.Note, "it will be bound when a class matches")
	})

	others := load.Start(t.Context(), load.Options{
		Client: w.Client, Kinds: []schema.GroupVersionKind{{Group: group, Version: "v1", Kind: "Claim"}}, Namespace: "late-load", PerSecond: 20,
		Spec: map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"tier": "ready"}}},
	})
	begin := time.Now()
	w.apply(t, class(group, "Class", "gold", "labels: {tier: gold}, "))
	w.awaitWaiting(t, kind, 0)
	took := time.Since(begin)
	report := must(others.Stop(t.Context()))(t)
	t.Logf("%d claims bound in %s, %.0f/s; meanwhile: %s", claims, took, float64(claims)/took.Seconds(), report)
	assert.Zero(t, report.Failures+report.Unbound+report.Unlike, "We should go on admitting claims.")
	w.boundOnce(t, group, claims)
	told(claims, "We should say to which class each was bound.", func(e eventsv1.Event) bool { return e.Reason == v1beta1.EventBoundToClass })
}

// TestLateBindingLeaderKilled kills the leader while it binds, and has another go on.
func TestLateBindingLeaderKilled(t *testing.T) {
	long(t)
	const claims, group, kind = 2000, "killed.test", "claims.killed.test"
	w, first := servedWorld(t, controlplane.Options{}, "--late-binding-rate=100")
	w.register(t, group, "{whenUnmatched: BindLater}")
	w.createMany(t, group, claims)
	w.awaitWaiting(t, kind, claims)
	w.serve(t) // Since the first leads, this one does not.

	w.apply(t, class(group, "Class", "one", "labels: {tier: gold}, ")+class(group, "Class", "two", "labels: {tier: gold}, "))
	w.awaitKind(t, kind, "", func(c *attempt, k *v1beta1.ClaimKind) { require.Positive(c, *k.Status.BoundClaims) })
	first.Kill()
	w.awaitWaiting(t, kind, 0)
	w.boundOnce(t, group, claims)
}
