package latebinding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector/inventory"
)

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
			if e.Regarding.Name == "both" && e.Reason == reason {
				notes = append(notes, e.Note)
			}
		}
		return notes
	}
	eventually(t, "We should say for each claim kind why a claim waits, but not for the one in conflict.", func(c *assert.CollectT) {
		for _, w := range r.claims.lateWatches() {
			view := r.binder.view(w)
			assert.Equal(c, w.kind.Name == rival, view == nil, w.kind.Name)
			if view != nil {
				r.binder.Events.notifyWaiting(t.Context(), w, view, time.Now().Add(noticeDelay+time.Second))
			}
		}
		assert.Len(c, eventsOf(v1beta1.EventNoMatchingClass), 2)
	})

	r.registration.Inventory.SetClasses(controllertest.NewClasses(classKind("levels.example.org", "Level", tiers), map[string][]string{"high": {"default", "true"}}))
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
	assert.Equal(t, map[string]int{"team-a/both": 2, "team-a/first-alone": 1}, s.patches, "We should write each reference once, and none for the claim kind in conflict.")
	s.mu.Unlock()
	eventually(t, "We should tell the author of both classes.", func(c *assert.CollectT) {
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
