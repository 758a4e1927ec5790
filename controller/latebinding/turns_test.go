package latebinding

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
)

// TestClaimsOverflow has more selectors wait than there is room for.
func TestClaimsOverflow(t *testing.T) {
	const claims = 100
	s := newClaimServer(t)
	for i := range claims {
		s.set(t, fmt.Sprintf("evil/claim-%d", i), selecting(i, 4000))
	}
	s.set(t, "evil/wants-gold", wantsGold)
	s.set(t, "honest/claim", wantsGold)
	r := newLateReplica(t, s, lateClaimKind())
	r.awaitCounts(t, ClaimCounts{Waiting: claims + 2})
	w := r.claims.watches()[lateKind]
	w.own(func(s *claimState) { s.resize(2000) })
	r.lead(t)
	eventually(t, "We should read each of them once.", func(c *assert.CollectT) {
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.GreaterOrEqual(c, s.reads, claims)
	})
	w.own(func(s *claimState) { assert.Less(t, s.room.used, int64(2000)) })
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold", "seven only-000007="+strings.Repeat("x", 60)))
	r.awaitCounts(t, ClaimCounts{Bound: 3, Waiting: claims - 1})
	bound := s.classes()
	assert.Equal(t, []string{"gold", "gold", "seven"}, []string{bound["evil/wants-gold"], bound["honest/claim"], bound["evil/claim-7"]}, "We should bind the claims that we have to read, too.")
	s.set(t, "evil/claim-8", selecting(7, 4000))
	r.awaitCounts(t, ClaimCounts{Bound: 4, Waiting: claims - 2})
	r.binder.Events.notifyWaiting(t.Context(), w, r.binder.view(w), time.Now().Add(noticeDelay+time.Second))
	eventually(t, "We should tell why they wait.", func(c *assert.CollectT) {
		assert.Equal(c, noteOverflow, s.notes(v1alpha1.EventNoMatchingClass)["evil/claim-9"])
	})
}

// TestWrote checks for which versions of a claim that was read again and written no
// other write is tried.
func TestWrote(t *testing.T) {
	version := func(v int, spec string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"namespace":"team-a","name":"db","uid":%q,"resourceVersion":"%d"},"spec":%s}`, uidOf(1), v, spec)
	}
	bound := version(6, `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`)
	for name, tc := range map[string]struct {
		reason string
		shown  [][]byte // by the watch, from its reading at version 5 to the end of the write
		waits  bool
	}{
		"NotShown":    {"We should wait for the watch.", nil, false},
		"Read":        {"We should wait for the watch to show what was written.", [][]byte{version(5, wantsGold)}, false},
		"Bound":       {"We should leave alone what is bound.", [][]byte{version(5, wantsGold), bound}, false},
		"BoundNoMore": {"We should bind again a claim whose reference was taken off.", [][]byte{bound, version(7, wantsGold)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLateWatch(t)
			w.state.resize(1)
			addClaim(t, w, version(4, wantsGold))
			attempt, waits := w.waits(uidOf(1))
			require.True(t, waits && attempt.unread)
			attempt.version, attempt.ask = "5", "=tier=gold" // As if it was read again.
			for _, raw := range tc.shown {
				addClaim(t, w, raw)
			}
			w.state.wrote(attempt)
			_, waits = w.waits(uidOf(1))
			assert.Equal(t, tc.waits, waits, tc.reason)
		})
	}
}

// TestUnreadTakeTurns checks that namespaces take turns, and that a round reads no more than it may.
func TestUnreadTakeTurns(t *testing.T) {
	w := newLateWatch(t)
	w.state.resize(1)
	for i := range 1000 {
		addClaim(t, w, claimJSON(i, selecting(i, 20), "evil"))
	}
	for i := range 3 {
		addClaim(t, w, claimJSON(10_000+i, wantsGold, fmt.Sprint("honest-", i)))
	}
	view := selector.NewView(w.kind, nil)
	seen := map[string]int{}
	for _, item := range w.due(t.Context(), view) {
		seen[item.namespace]++
	}
	assert.Equal(t, map[string]int{"evil": v1alpha1.LateReads - 3, "honest-0": 1, "honest-1": 1, "honest-2": 1}, seen, "We should take turns.")
	all := map[string]int{}
	for range 2000 / v1alpha1.LateReads {
		for _, item := range w.due(t.Context(), view) {
			all[string(item.uid)]++
		}
	}
	assert.Len(t, all, 1000-(v1alpha1.LateReads-3), "We should come to all.")
	for uid, n := range all {
		assert.Equal(t, 1, n, "We should read %s once for a view.", uid)
	}
	assert.Empty(t, w.due(t.Context(), view))
	assert.Len(t, w.due(t.Context(), selector.NewView(w.kind, nil)), v1alpha1.LateReads, "We should read them again for another.")
}

// patches answers the PATCH requests of claims, as a client's transport.
type patches func(*http.Request) (*http.Response, error)

func (p patches) RoundTrip(r *http.Request) (*http.Response, error) { return p(r) }

// patched is the answer to a PATCH that was accepted.
func patched(r *http.Request) *http.Response {
	body := fmt.Sprintf(`{"metadata":{"name":%q,"uid":"u","resourceVersion":"2"},"spec":{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}}`, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// bubble is a late binder without a network, for synctest. Its kinds are
// claims.example.org and others.example.org.
func bubble(t *testing.T, transport patches) (b *Binder, claims, others *claimWatch) {
	t.Helper()
	config, reader := &rest.Config{Host: "http://none", QPS: -1, Transport: transport}, &controllertest.Cached{}
	registration, err := registry.NewRegistration(config, reader, reader)
	require.NoError(t, err)
	inventory := registration.Inventory
	all, err := NewClaims(registration, reader, config, "", v1alpha1.DefaultLateMemory)
	require.NoError(t, err)
	golds := selector.NewClassKind(&v1alpha1.ClassKind{Spec: v1alpha1.ClassKindSpec{ClaimKinds: []string{lateKind, "others.example.org"}}}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	add := func(name string) *claimWatch {
		k := lateClaimKind(func(k *v1alpha1.ClaimKind) { k.Name = name })
		compiled := selector.NewClaimKind(k)
		inventory.SetClaimKind(compiled)
		w := newClaimWatch(t.Context(), compiled, cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Claim"}, Namespaced: true}, namespacesOf(t, v1alpha1.NamespaceSelector{}), func() {})
		t.Cleanup(w.stop)
		all.kinds[name] = &watchedClaims{watch: w}
		return w
	}
	claims, others = add(lateKind), add("others.example.org")
	inventory.SetClasses(labelled(golds, "gold tier=gold"))
	inventory.Open()
	b = &Binder{Claims: all, Events: NewEvents(nil, ""), Namespaces: namespaces{}, Rate: 100, Decider: &selector.Decider{Fresh: rand.Uint64, Now: time.Now}}
	return b, claims, others
}

func (b *Binder) startIn(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.Start(ctx) }()
	return func() {
		cancel()
		assert.NoError(t, <-done)
	}
}

// TestKindsDoNotStarve has every write of one kind hang.
func TestKindsDoNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mu, bound, hung := sync.Mutex{}, 0, 0
		b, claims, others := bubble(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			hangs := strings.Contains(r.URL.Path, "/others/")
			if hangs {
				hung++
			} else {
				bound++
			}
			mu.Unlock()
			if hangs {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return patched(r), nil
		})
		b.Events.client = noEvents{}
		for i := range 1000 {
			addClaim(t, others, claimJSON(i, wantsGold))
		}
		for i := range 50 {
			addClaim(t, claims, claimJSON(i, wantsGold))
		}
		end := b.startIn(t)
		time.Sleep(3 * time.Second) // In the bubble's time.
		synctest.Wait()
		mu.Lock()
		assert.Equal(t, 50, bound, "We should bind the claims of the kind whose writes do not hang.")
		assert.Equal(t, lateWorkers, hung, "We should have no more writes of a kind at once than workers.")
		mu.Unlock()
		end()
	})
}

// TestTurns makes many claims of one namespace due, then one of another namespace, and
// one of another kind.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mu, order := sync.Mutex{}, []string{}
		b, claims, others := bubble(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			path := strings.Split(r.URL.Path, "/") // /apis/example.org/v1/namespaces/NS/KIND/NAME
			order = append(order, path[5]+"/"+path[6])
			return patched(r), nil
		})
		b.Events.client = noEvents{}
		for i := range 10_000 {
			addClaim(t, claims, claimJSON(i, wantsGold, "evil"))
		}
		end := b.startIn(t)
		time.Sleep(5 * time.Second) // Of the bubble: it is busy with the many.
		synctest.Wait()
		mu.Lock()
		before := len(order)
		mu.Unlock()
		require.Greater(t, before, 100)
		addClaim(t, claims, claimJSON(100_000, wantsGold, "honest"))
		addClaim(t, others, claimJSON(100_001, wantsGold, "evil"))
		time.Sleep(2 * lateRound)
		synctest.Wait()
		mu.Lock()
		after := order[before:]
		mu.Unlock()
		for _, one := range []string{"honest/claims", "evil/others"} {
			at := slices.Index(after, one)
			assert.NotEqual(t, -1, at, "We should bind %s.", one)
			assert.Less(t, at, b.Rate/2+2*lateWorkers, "We should bind %s in the next turn, after a round and what is under way.", one)
		}
		end()
	})
}

// TestRefusedByAGate has a gate refuse the only class for a minute.
func TestRefusedByAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiting = 50
		var open atomic.Bool
		var asked, written, events atomic.Int64
		b, claims, _ := bubble(t, func(r *http.Request) (*http.Response, error) {
			written.Add(1)
			return patched(r), nil
		})
		b.Events.client = noEvents{created: &events}
		b.Decider.Gates = []selector.Gate{{Reason: "Full", Text: "full", Admits: func(_ context.Context, mode selector.Mode, _ *selector.View, _ selector.Claim, _ *selector.Class) (bool, error) {
			assert.Equal(t, selector.Later, mode, "We should ask only for a claim that is about to be bound.")
			asked.Add(1)
			return open.Load(), nil
		}}}
		for i := range waiting {
			addClaim(t, claims, claimJSON(i, wantsGold, "team"))
		}
		end := b.startIn(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, written.Load(), "We should not bind to a class that is full.")
		assert.LessOrEqual(t, asked.Load(), int64(waiting*(1+time.Minute/registry.RetryAfter)), "We should ask again after a while, and not all the time.")
		assert.EqualValues(t, waiting, events.Load(), "We should tell each claim's author once.")
		open.Store(true)
		time.Sleep(registry.RetryAfter + lateRound)
		synctest.Wait()
		assert.EqualValues(t, waiting, written.Load(), "We should bind once there is room.")
		end()
	})
}

// TestAskingTakesTurns checks that namespaces take turns.
func TestAskingTakesTurns(t *testing.T) {
	w := newLateWatch(t)
	for i := range 1000 {
		addClaim(t, w, claimJSON(i, selecting(i, 20), "evil"))
	}
	for i := range 3 {
		addClaim(t, w, claimJSON(10_000+i, wantsGold, fmt.Sprint("honest-", i)))
	}
	first := map[string]bool{}
	questions, _ := w.state.unasked(selector.NewView(w.kind, nil))
	for _, q := range questions[:4] {
		first[q.namespace] = true
	}
	assert.Len(t, first, 4, "We should ask for one of each namespace first.")
}

// TestPanicsAreSurvived causes a panic wherever a claim can.
func TestPanicsAreSurvived(t *testing.T) {
	t.Run("Binding", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mu, calls := sync.Mutex{}, 0
			b, claims, _ := bubble(t, func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "-0") {
					mu.Lock()
					defer mu.Unlock()
					calls++
					panic("a poisoned claim")
				}
				return patched(r), nil
			})
			b.Events.client = noEvents{}
			for i := range 3 {
				addClaim(t, claims, claimJSON(i, wantsGold))
			}
			end := b.startIn(t)
			time.Sleep(time.Minute)
			synctest.Wait()
			end()
			assert.False(t, claims.state.waiting[uidOf(0)].written)
			assert.True(t, claims.state.waiting[uidOf(1)].written && claims.state.waiting[uidOf(2)].written, "We should bind the other claims.")
			assert.Positive(t, calls)
			registry := prometheus.NewRegistry()
			registry.MustRegister(b.Claims.Metrics)
			assert.InDelta(t, calls, controllertest.Scraped(t, registry)["late_bindings_total claim_kind="+lateKind+" outcome="+latePanicked], 0, "We should count panics.")
			assert.Less(t, calls, 10, "We should try less and less.")
		})
	})
	t.Run("Asking", func(t *testing.T) {
		w := newLateWatch(t)
		addClaim(t, w, claimJSON(0, `{"classSelector":{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}}`))
		broken := &selector.View{Kind: w.kind, Classes: []*selector.Classes{nil}}
		assert.Empty(t, w.due(t.Context(), broken))
		assert.Empty(t, w.due(t.Context(), selector.NewView(w.kind, nil)), "We should not ask again.")
		e := NewEvents(nil, "")
		later := time.Now().Add(noticeDelay + time.Second)
		e.notifyWaiting(t.Context(), w, broken, later)
		require.Equal(t, 1, e.queue.len())
		event, _ := e.queue.pop(t.Context())
		assert.Equal(t, panicText, event.note)
	})
	t.Run("Reading", func(t *testing.T) {
		w := newLateWatch(t)
		w.kind = &selector.ClaimKind{BindLater: true} // Without its paths.
		addClaim(t, w, claimJSON(0, wantsGold))
		attempt := w.state.waiting[uidOf(0)].attempt()
		assert.Equal(t, panicText, attempt.ask.Problem(), "We should say so to who waits.")
	})
	t.Run("TakingIn", func(t *testing.T) { // An owner that ends would make the replica hang.
		w := newLateWatch(t)
		require.Panics(t, func() { w.own(func(*claimState) { panic("a poisoned claim") }) }, "We should tell who made the change.")
		addClaim(t, w, claimJSON(1, wantsGold))
		n, _ := w.counts()
		assert.Equal(t, 1, n.Waiting, "We should go on with the other claims.")
	})
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
			gold, none := selector.NewView(w.kind, []*selector.Classes{labelled(golds, "gold tier=gold")}), selector.NewView(w.kind, nil)
			require.Len(t, w.due(t.Context(), gold), 1)
			time.Sleep(2 * noticeDelay)
			require.Empty(t, notified(w), "We should tell nothing to a claim that has a class.")
			attempt, waits := w.waits(uidOf(0))
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
				w.due(t.Context(), selector.NewView(w.kind, []*selector.Classes{labelled(golds, "gold tier=gold")}))
				w.due(t.Context(), selector.NewView(w.kind, nil))
				time.Sleep(noticeDelay / 2)
			}
			assert.Equal(t, []string{"=tier=gold", "=tier=silver"}, notified(w), "We should not have a claim wait for the one before it.")
		})
	})
}

// TestNotifyingEnds checks that it ends when its time is over, and yet goes on in each
// round, whatever else the round has to do.
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
		assert.Zero(t, b.Events.queue.len())
		time.Sleep(noticeDelay)
		for i := range claims {
			b.round(t.Context(), w, false, noTime)
			assert.Equal(t, i+1, b.Events.queue.len(), "We should tell one claim in each round.")
		}
		b.round(t.Context(), w, false, lateAsking)
		assert.Equal(t, claims, b.Events.queue.len(), "We should tell each once.")
	})
}

// TestEventsOfOneNamespace checks that they leave places for those of others.
func TestEventsOfOneNamespace(t *testing.T) {
	q := newBoundedQueue(100, func(s string) string { return s[:1] })
	push := func(namespace string, n, most int) (pushed int) {
		for range n {
			if q.push(namespace, most) {
				pushed++
			}
		}
		return pushed
	}
	assert.Equal(t, 38, push("evil", 1000, 50), "We should leave a quarter of the places that it may have.")
	assert.Equal(t, 75-38, push("evil", 1000, 100))
	assert.Equal(t, 19, push("bad", 1000, 100), "We should leave a quarter of the rest.")
	assert.Equal(t, 3, push("honest", 3, 100), "We should have a place for who has few.")
	assert.False(t, q.hasPlace("e", 100))
	assert.True(t, q.hasPlace("h", 100))
	var order []string
	for range 6 {
		item, _ := q.pop(t.Context())
		order = append(order, item)
	}
	assert.Equal(t, []string{"evil", "bad", "honest", "evil", "bad", "honest"}, order, "We should take turns.")
	for q.len() > 0 {
		q.pop(t.Context())
	}
	over, end := context.WithCancel(t.Context())
	end()
	_, ok := q.pop(over)
	assert.False(t, ok)
}

// BenchmarkAskingAgain measures what it costs to hold selectors as text.
func BenchmarkAskingAgain(b *testing.B) {
	for name, ask := range map[string]selector.Ask{
		"Short":  "=tier=gold",
		"Many":   selector.Ask("=" + strings.TrimSuffix(strings.Repeat("example.org/some-key in (a,b,c),", 64), ",")),
		"Values": selector.Ask("=tier in (" + strings.TrimSuffix(strings.Repeat("some-value-of-a,", 1000), ",") + ")"),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := ask.Claim("team-a", "x"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
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
