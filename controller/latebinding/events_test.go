package latebinding

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"

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
		w := r.claims.watches()[lateKind]
		view := r.binder.view(w)
		r.binder.Events.notifyWaiting(t.Context(), w, view, time.Now())
		assert.Zero(t, r.binder.Events.queue.queue.Len(), "We should wait for a while before we say that a claim waits.")
		for range 2 {
			r.binder.Events.notifyWaiting(t.Context(), w, view, time.Now().Add(noticeDelay+time.Second))
		}
		eventually(t, "We should say it.", func(c *assert.CollectT) {
			assert.Equal(c, map[string]string{
				"team-a/waits":     `no class for this claim of "claims.example.org" matches the selector "tier=gold" (among 0 classes of golds.example.org): change the selector, or create or label a class; it will be bound when a class matches`,
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
	w := r.claims.watches()[lateKind]
	later := time.Now()
	notify := func(view *selector.View) {
		later = later.Add(noticeDelay + time.Second)
		r.binder.Events.notifyWaiting(t.Context(), w, view, later)
	}
	notify(selector.NewView(w.kind, []*inventory.Classes{labelled(r.golds, "gold tier=gold")})) // No round asks for this one.
	view := r.binder.view(w)
	eventually(t, "We should try to say it, in vain, again and again.", func(c *assert.CollectT) {
		notify(view)
		assert.Greater(c, s.creations(), 2)
	})
	s.refuse("create", 0)
	eventually(t, "We should say it when it can be said.", func(c *assert.CollectT) {
		notify(view)
		assert.Len(c, s.notes(v1beta1.EventNoMatchingClass), 1)
	})
	n := s.creations()
	notify(view)
	notify(view)
	assert.Zero(t, r.binder.Events.queue.queue.Len())
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
	w := r.claims.watches()[lateKind]
	begin := time.Now()
	r.lead(t)
	eventually(t, "We should begin to say that there is no class.", func(c *assert.CollectT) {
		if view := r.binder.view(w); view != nil {
			r.binder.Events.notifyWaiting(t.Context(), w, view, time.Now().Add(noticeDelay+time.Second))
		}
		assert.Greater(c, s.creations(), 2*rate+5)
	})
	assert.LessOrEqual(t, float64(s.creations()), 2*rate+rate*time.Since(begin).Seconds()+eventWorkers, "We should keep to the rate.")
}

// TestWhoIsNotified checks which claims get the event that there is no class, while classes come and go.
func TestWhoIsNotified(t *testing.T) {
	golds := controllertest.NewClassKind("golds.example.org", "Gold")
	notified := func(w *claimWatch) (names []string) {
		for {
			claims := w.state.takeToNotify(time.Now(), func(string) bool { return true })
			if len(claims) == 0 {
				return names
			}
			for _, c := range claims {
				names = append(names, string(c.ask))
			}
		}
	}
	t.Run("Missed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newLateWatch(t)
			addClaim(t, w, claimJSON(0, wantsGold))
			gold, none := selector.NewView(w.kind, []*inventory.Classes{labelled(golds, "gold tier=gold")}), selector.NewView(w.kind, nil)
			require.Len(t, w.due(t.Context(), gold), 1)
			time.Sleep(2 * noticeDelay)
			require.Empty(t, notified(w), "We should tell nothing to a claim that has a class.")
			attempt, waits, _ := w.waits(uidOf(0))
			require.True(t, waits)
			w.state.missed(attempt) // Its class went before it was written.
			assert.Empty(t, w.due(t.Context(), none))
			time.Sleep(2 * noticeDelay)
			assert.Equal(t, []string{"=tier=gold"}, notified(w), "We should tell it in the end.")
		})
	})
	t.Run("Flaps", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newLateWatch(t)
			addClaim(t, w, claimJSON(0, wantsGold))
			addClaim(t, w, claimJSON(1, `{"classSelector":{"matchLabels":{"tier":"silver"}}}`))
			for range 4 {
				w.due(t.Context(), selector.NewView(w.kind, []*inventory.Classes{labelled(golds, "gold tier=gold")}))
				w.due(t.Context(), selector.NewView(w.kind, nil))
				time.Sleep(noticeDelay / 2)
			}
			assert.Equal(t, []string{"=tier=gold", "=tier=silver"}, notified(w), "We should not have a claim wait for the one before it.")
		})
	})
}

// TestNotifyingEnds checks that it ends when its time is over, and yet goes on in each round, whatever else the round has to do.
func TestNotifyingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, _ := bubble(t, nil)
		b.Events = NewEvents(nil, "")
		const claims = 10
		for i := range claims {
			addClaim(t, w, claimJSON(i, selecting(i, 20), fmt.Sprint("team-", i)))
		}
		const noTime = 0
		b.round(t.Context(), w, true, noTime)
		assert.Zero(t, b.Events.queue.queue.Len())
		time.Sleep(noticeDelay)
		for i := range claims {
			b.round(t.Context(), w, false, noTime)
			assert.Equal(t, i+1, b.Events.queue.queue.Len(), "We should tell one claim in each round.")
		}
		b.round(t.Context(), w, false, lateAsking)
		assert.Equal(t, claims, b.Events.queue.queue.Len(), "We should tell each once.")
	})
}

func TestEventsOfOneNamespace(t *testing.T) {
	q, w := newEventQueue(100), newLateWatch(t)
	push := func(namespace string, n, most int) (pushed int) {
		for range n {
			if q.push(&queuedEvent{Event: NewEvents(nil, "").event(w, waitingAttempt{namespace: namespace}, "", "")}, most) {
				pushed++
			}
		}
		return pushed
	}
	assert.Equal(t, 38, push("evil", 1000, 50), "We should leave a quarter of the places that it may have.")
	assert.Equal(t, 75-38, push("evil", 1000, 100))
	assert.Equal(t, 19, push("bad", 1000, 100), "We should leave a quarter of the rest.")
	assert.Equal(t, 3, push("honest", 3, 100), "We should have a place for who has few.")
	assert.False(t, q.hasPlace("evil", 100))
	assert.True(t, q.hasPlace("honest", 100))
	var order []string
	for range 6 {
		e, _ := q.pop(t.Context())
		order = append(order, e.Regarding.Namespace)
	}
	assert.Equal(t, []string{"evil", "bad", "honest", "evil", "bad", "honest"}, order, "We should take turns.")
	for q.queue.Len() > 0 {
		q.pop(t.Context())
	}
	over, end := context.WithCancel(t.Context())
	end()
	_, ok := q.pop(over)
	assert.False(t, ok)
}

// noEvents accepts all events, and keeps none. It counts them, if there is a counter.
type noEvents struct {
	eventsclient.EventsV1Interface

	created *atomic.Int64
}

func (n noEvents) Events(string) eventsclient.EventInterface { return noEventsOf{created: n.created} }

type noEventsOf struct {
	eventsclient.EventInterface

	created *atomic.Int64
}

func (n noEventsOf) Create(_ context.Context, e *eventsv1.Event, _ metav1.CreateOptions) (*eventsv1.Event, error) {
	if n.created != nil {
		n.created.Add(1)
	}
	return e, nil
}
