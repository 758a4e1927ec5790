package latebinding

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
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
		serving, err := registry.NewRegistration(controllertest.NewAPIServer(t, map[string]any{
			"/apis/example.org":    controllertest.APIGroup("v1"),
			"/apis/example.org/v1": controllertest.APIResources(claims),
		}), r.claims.reader, nil)
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
	k := r.kindBinder(t)
	k.round(t.Context())
	assert.Zero(t, k.queue.Len(), "We should queue nothing that we cannot write.")

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
		claim := view.Kind.Reader.Read("team-a", "new-"+strconv.Itoa(n), map[string]any{"spec": map[string]any{"classSelector": map[string]any{}}})
		require.Empty(t, claim.Problems)
		d := previewed(t, view, claim.Claim)
		if class != "" {
			assert.Equal(t, class, d.Class.Name, reason)
		}
		return d
	}
	d := choose("gold-2", "We should choose the class with the fewest claims.")
	_, err := r.binder.Decider.Decide(t.Context(), d.View, d.Claim, selector.Mode{})
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
	unwatched, err := NewClaims(r.registration, r.claims.reader, s.config(), "")
	require.NoError(t, err)
	require.ErrorIs(t, unwatched.Ready(now), errNotWatched, "We should wait until the claims are counted.")
	assert.True(t, NotYet(unwatched.Problem(lateKind)), "We should say that we do not watch yet.")
	require.NoError(t, unwatched.Ready(now.Add(registry.RefusalGrace)), "We should not wait for ever.")
	r.awaitCounts(t, ClaimCounts{})
	require.NoError(t, r.claims.Ready(now), "We should be ready when they are.")
	r.claims.drop(lateKind)
	require.NoError(t, r.claims.Ready(now), "We should not cease to be ready for a kind that is registered later.")
}

// TestKindsOfOneResource has claims with two references wait for both classes. A third claim
// kind wants the first reference, too, and gets it when the first claim kind goes.
func TestKindsOfOneResource(t *testing.T) {
	const tiers, rival = "tiers", "z-rival"
	s := newClaimServer(t)
	s.set(t, "team-a/both", wantsGold)
	s.set(t, "team-a/first-alone", `{"tierRef":{"name":"mine"},"classSelector":{"matchLabels":{"tier":"gold"}}}`)
	r := newLateReplica(t, s, lateClaimKind())
	register := func(k *v1beta1.ClaimKind) {
		compiled := r.recompiled(k)
		r.registration.Inventory.SetClaimKind(compiled)
		r.follow(t, k, compiled)
		t.Cleanup(func() { r.claims.drop(k.Name) })
	}
	register(lateClaimKind(func(k *v1beta1.ClaimKind) {
		k.Name, k.UID, k.Spec.Claims.Resource = tiers, "7e12", lateKind
		k.Spec.Reference.Path, k.Spec.Selector.Path = ".spec.tierRef", ".spec.tierSelector"
	}))
	register(lateClaimKind(func(k *v1beta1.ClaimKind) { k.Name, k.UID, k.Spec.Claims.Resource = rival, "41b1", lateKind }))
	classKind := func(name, kind, claimKind string) *inventory.ClassKind {
		c := controllertest.NewClassKind(name, kind)
		c.ClaimKinds = []string{claimKind}
		return c
	}
	r.registration.Inventory.SetClasses(labelled(classKind("silvers.example.org", "Silver", rival), "silver tier=gold"))
	r.lead(t)
	eventually(t, "We should see the claims of each claim kind wait.", func(c *assert.CollectT) {
		for name, want := range map[string]ClaimCounts{lateKind: {Waiting: 2}, tiers: {Bound: 1, Waiting: 1}, rival: {Waiting: 2}} {
			n, known := r.claims.CountsOf(name)
			assert.True(c, known)
			assert.Equal(c, want, n, name)
		}
	})
	eventsOf := func(reason string) (notes []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.events {
			if e.InvolvedObject.Name == "both" && e.Reason == reason {
				notes = append(notes, e.Message)
			}
		}
		return notes
	}
	eventually(t, "We should say for each claim kind why a claim waits, but not for the one in conflict.", func(c *assert.CollectT) {
		for _, w := range r.claims.lateWatches() {
			k := r.binder.newKindBinder(t.Context(), w)
			view := k.view()
			assert.Equal(c, w.kind.Name == rival, view == nil, w.kind.Name)
			if view != nil {
				k.notify(t.Context(), view, time.Now().Add(noticeDelay+time.Second))
			}
		}
		assert.Len(c, eventsOf(v1beta1.EventNoMatchingClass), 2)
	})

	r.registration.Inventory.SetClasses(controllertest.NewClasses(classKind("levels.example.org", "Level", tiers), map[string][]string{
		"high": {"default", "true"},
	}))
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	references := func(claim string) (class, tier string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		class, _, _ = unstructured.NestedString(s.claims[claim].Object, "spec", "classRef", "name")
		tier, _, _ = unstructured.NestedString(s.claims[claim].Object, "spec", "tierRef", "name")
		return class, tier
	}
	eventually(t, "We should write both references, though each write makes the other's outdated.", func(c *assert.CollectT) {
		class, tier := references("team-a/both")
		assert.Equal(c, "gold", class)
		assert.Equal(c, "high", tier)
	})
	eventually(t, "We should leave alone a reference that is set, and write the other.", func(c *assert.CollectT) {
		class, tier := references("team-a/first-alone")
		assert.Equal(c, "gold", class)
		assert.Equal(c, "mine", tier)
	})
	s.mu.Lock()
	assert.Equal(
		t, map[string]int{"team-a/both": 2, "team-a/first-alone": 1}, s.patches,
		"We should write each reference once, and none for the claim kind in conflict.",
	)
	s.mu.Unlock()
	eventually(t, "We should inform the author of both classes.", func(c *assert.CollectT) {
		assert.Len(c, eventsOf(v1beta1.EventBoundToClass), 2)
	})

	r.registration.Inventory.DeleteClaimKind(lateKind)
	s.set(t, "team-a/later", wantsGold)
	eventually(t, "We should bind by the other claim kind once the first is gone.", func(c *assert.CollectT) {
		class, tier := references("team-a/later")
		assert.Equal(c, "silver", class)
		assert.Equal(c, "high", tier)
	})
}
