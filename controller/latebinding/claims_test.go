package latebinding

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
)

// TestCountedThoughNotWritable has an API server that cannot patch the claims.
func TestCountedThoughNotWritable(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/waits", wantsGold)
	s.set(t, "team-a/bound", `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`)
	r := newLateReplica(t, s, lateClaimKind())
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	claims := metav1.APIResource{Name: "claims", Kind: "Claim", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}
	serve := func() {
		serving, err := registry.NewRegistration(controllertest.NewAPIServer(t, map[string]any{"/apis/example.org": controllertest.APIGroup("v1"), "/apis/example.org/v1": controllertest.APIResources(claims)}), r.claims.reader, nil)
		require.NoError(t, err)
		serving.Inventory = r.registration.Inventory
		r.claims.registration = serving
	}
	serve()
	r.awaitCounts(t, ClaimCounts{Bound: 1, Waiting: 1})
	reconcile := func() ctrl.Result {
		result, err := r.claims.reconcile(t.Context(), lateKind)
		require.NoError(t, err)
		return result
	}
	assert.Equal(t, registry.RetryAfter, reconcile().RequeueAfter, "We should look again.")
	require.NoError(t, r.claims.Problem(lateKind), "We should go on counting.")
	late := r.claims.LateProblem(lateKind)
	require.ErrorIs(t, late, cluster.ErrUnsuitable)
	require.ErrorContains(t, late, `"patch"`, "We should say what is missing.")
	r.binder.round(t.Context(), r.claims.watches()[lateKind], true, lateAsking)
	assert.Empty(t, r.binder.writers, "We should queue nothing that we cannot write.")

	claims.Verbs = append(claims.Verbs, "patch")
	serve()
	assert.Zero(t, reconcile())
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Bound: 2})
}

func TestLeastClaimsCounted(t *testing.T) {
	s := newClaimServer(t)
	bound := func(name, class string) {
		s.set(t, "team-a/"+name, fmt.Sprintf(`{"classRef":{"apiVersion":"example.org/v2","kind":"Gold","name":%q}}`, class))
	}
	bound("one", "gold-1")
	bound("two", "gold-1")
	bound("three", "gold-2")
	s.set(t, "team-a/none", wantsGold)
	r := newLateReplica(t, s, lateClaimKind(func(k *v1beta1.ClaimKind) {
		k.Spec.Choice.Strategy, k.Spec.WhenUnmatched = v1beta1.LeastClaims, v1beta1.Admit
	}))
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold-1 tier=gold", "gold-2 tier=gold"))
	r.awaitCounts(t, ClaimCounts{Bound: 3})
	require.NoError(t, r.claims.Ready(time.Now()))
	n := 0
	choose := func(class, reason string) selector.Decision {
		t.Helper()
		n++
		view := r.registration.Inventory.Snapshot()[lateKind]
		claim := view.Kind.Read("team-a", "new-"+strconv.Itoa(n), map[string]any{"spec": map[string]any{"classSelector": map[string]any{}}})
		require.Empty(t, claim.Problems)
		d := previewed(t, view, claim.Claim)
		if class != "" {
			assert.Equal(t, class, d.Class.Name, reason)
		}
		return d
	}
	d := choose("gold-2", "We should choose the class with the fewest claims.")
	_, err := r.binder.Decider.Decide(t.Context(), d.View, d.Claim, selector.Admit)
	require.NoError(t, err)
	bound("four", "gold-2")
	r.awaitCounts(t, ClaimCounts{Bound: 4})
	choose("gold-1", "We should count the claim that was given a class a moment ago: two to three.")
	bound("new-1", "gold-2")
	r.awaitCounts(t, ClaimCounts{Bound: 5})
	s.remove("team-a/four")
	s.remove("team-a/three")
	r.awaitCounts(t, ClaimCounts{Bound: 3})
	choose("gold-2", "We should count a claim once that is stored, and not one that is deleted.")

	again := *r.kind
	again.Generation = 2
	r.follow(t, &again, r.recompiled(&again))
	r.awaitCounts(t, ClaimCounts{Bound: 3})
	choose("gold-2", "We should count no claim twice after a change of the registration.")
	r.claims.drop(lateKind)
	seen := map[string]bool{}
	for range 50 {
		seen[choose("", "").Class.Name] = true
	}
	assert.Len(t, seen, 2, "We should count nothing that is watched no more.")
}

func TestReadyWaitsForCounts(t *testing.T) {
	s := newClaimServer(t)
	k := lateClaimKind(func(k *v1beta1.ClaimKind) { k.Spec.Choice.Strategy = v1beta1.LeastClaims })
	r := newLateReplica(t, s, k)
	now := time.Now()
	unwatched, err := NewClaims(r.registration, r.claims.reader, s.config(), "", v1beta1.DefaultLateMemory)
	require.NoError(t, err)
	require.ErrorIs(t, unwatched.Ready(now), errNotWatched, "We should wait until the claims are counted.")
	assert.True(t, NotYet(unwatched.Problem(lateKind)), "We should say that we do not watch yet.")
	require.NoError(t, unwatched.Ready(now.Add(registry.RefusalGrace)), "We should not wait for ever.")
	r.awaitCounts(t, ClaimCounts{})
	require.NoError(t, r.claims.Ready(now), "We should be ready when they are.")
	r.claims.drop(lateKind)
	require.NoError(t, r.claims.Ready(now), "We should not cease to be ready for a kind that is registered later.")
}
