package latebinding

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// TestNoMatchingClass sends one event for each claim that stays unbound, over two terms.
func TestNoMatchingClass(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/waits", wantsGold)
	s.set(t, "team-a/malformed", `{"classSelector":"gold"}`)
	s.set(t, "kube-system/ours-not", wantsGold)
	for range 2 {
		r := newLateReplica(t, s, lateClaimKind())
		r.awaitCounts(t, ClaimCounts{Waiting: 2})
		r.lead(t)
		r.rounds(t)
		w, k := r.claims.watches()[lateKind], r.kindBinder(t)
		eventually(t, "We should wait for a while before we say that a claim waits.", func(c *assert.CollectT) {
			k.notify(t.Context(), k.view(), time.Now())
			w.own(func(s *claimState) { assert.Equal(c, 2, s.waiting.unnotified.Len()) })
		})
		for range 2 {
			r.notify(t)
		}
		eventually(t, "We should say it.", func(c *assert.CollectT) {
			assert.Equal(c, map[string]string{
				"team-a/waits": `no class for this claim of "claims.example.org" matches the selector "tier=gold" (among 0 classes of ` +
					`golds.example.org): change the selector, or create or label a class; it will be bound when a class matches`,
				"team-a/malformed": `spec.classSelector: Invalid value: "gold": must be an object, a label selector`,
			}, s.notes(v1beta1.EventNoMatchingClass))
		})
	}
}

// TestNoMatchingClassIsSentInTheEnd has the event fail, and a class come and go, first.
func TestNoMatchingClassIsSentInTheEnd(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/waits", wantsGold)
	s.refuse("create", http.StatusInternalServerError)
	r := newLateReplica(t, s, lateClaimKind())
	r.awaitCounts(t, ClaimCounts{Waiting: 1})
	r.lead(t)
	r.rounds(t)
	w, k := r.claims.watches()[lateKind], r.kindBinder(t)
	later := time.Now()
	notify := func(view *selector.View) {
		later = later.Add(noticeDelay + time.Second)
		k.notify(t.Context(), view, later)
	}
	gold := selector.NewView(w.kind, []*inventory.Classes{labelled(r.golds, "gold tier=gold")})
	notify(gold) // No round looks at this one.
	assert.Zero(t, s.creations(), "We should not say it of a claim that has a class.")
	w.own(func(s *claimState) { s.rounds.view = nil }) // The next round does.
	eventually(t, "We should try to say it, in vain, again and again.", func(c *assert.CollectT) {
		notify(k.view())
		assert.Greater(c, s.creations(), 2)
	})
	s.refuse("create", 0)
	eventually(t, "We should say it when it can be said.", func(c *assert.CollectT) {
		notify(k.view())
		assert.Len(c, s.notes(v1beta1.EventNoMatchingClass), 1)
		w.own(func(s *claimState) { s.waiting.each(func(of *waitingClaim) { assert.True(c, of.notified) }) })
	})
	n := s.creations()
	notify(k.view())
	notify(k.view())
	w.own(func(s *claimState) { assert.Zero(t, s.waiting.unnotified.Len()) })
	assert.Equal(t, n, s.creations(), "We should say it once.")
}

func TestEventsRate(t *testing.T) {
	s := newClaimServer(t)
	const claims, rate = 300, 50
	for i := range claims {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	r := newLateReplica(t, s, lateClaimKind(), func(b *Binder) { b.Rate = rate })
	r.awaitCounts(t, ClaimCounts{Waiting: claims})
	begin := time.Now()
	r.lead(t)
	r.rounds(t)
	k := r.kindBinder(t)
	eventually(t, "We should begin to say that there is no class.", func(c *assert.CollectT) {
		k.notify(t.Context(), k.view(), time.Now().Add(noticeDelay+time.Second))
		assert.Greater(c, s.creations(), 2*rate+5)
	})
	assert.LessOrEqual(t, float64(s.creations()), 2*rate+rate*time.Since(begin).Seconds()+1, "We should keep to the rate.")
}

// TestWhoIsNotified checks which claims get the event that there is no class, while classes come and go.
func TestWhoIsNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLateWatch(t)
		k := idle(t, w)
		golds := controllertest.NewClassKind("golds.example.org", "Gold")
		notified := func() (asks []string) {
			for {
				seen, found := w.state.waiting.takeUnnotified(time.Now())
				if !found {
					return asks
				}
				asks = append(asks, string(seen.ask))
			}
		}
		gold, none := selector.NewView(w.kind, []*inventory.Classes{labelled(golds, "gold tier=gold")}), selector.NewView(w.kind, nil)
		addClaim(t, w, claimJSON(0, wantsGold))
		assert.Equal(t, 1, k.lookAt(t, gold, 0))
		time.Sleep(2 * noticeDelay)
		assert.Empty(t, notified(), "We should reveal nothing to a claim that has a class.")
		seen, waits, _ := w.waits(waitingItem{"team-a", uidOf(0)})
		assert.True(t, waits)
		w.state.missed(seen, &selector.Decision{}) // Its class went before it was written.
		addClaim(t, w, claimJSON(1, `{"classSelector":{"matchLabels":{"tier":"silver"}}}`))
		assert.Zero(t, k.lookAt(t, none, 0))
		time.Sleep(noticeDelay / 2)
		addClaim(t, w, bytes.Replace(claimJSON(1, `{"classSelector":{"matchLabels":{"tier":"steel"}}}`), []byte("1234567"), []byte("7654321"), 1))
		assert.Empty(t, notified(), "We should wait for a while.")
		time.Sleep(noticeDelay / 2)
		k.lookAt(t, none, 0)
		assert.Equal(t, []string{"=tier=gold", "=tier=steel"}, notified(), "We should report it in the end, once, however often a claim changes.")
		time.Sleep(2 * noticeDelay)
		assert.Empty(t, notified())
	})
}

// noEvents accepts all events, and keeps none. It counts them, if there is a counter.
type noEvents struct {
	eventsclient.EventsGetter

	created *atomic.Int64
}

func (n noEvents) Events(string) eventsclient.EventInterface { return noEventsOf{created: n.created} }

type noEventsOf struct {
	eventsclient.EventInterface

	created *atomic.Int64
}

func (n noEventsOf) Create(_ context.Context, e *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	if n.created != nil {
		n.created.Add(1)
	}
	return e, nil
}
