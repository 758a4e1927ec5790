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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// patches answers the PATCH requests of claims, as a client's transport.
type patches func(*http.Request) (*http.Response, error)

func (p patches) RoundTrip(r *http.Request) (*http.Response, error) { return p(r) }

// patched is the answer to a PATCH that was accepted.
func patched(r *http.Request) *http.Response {
	body := fmt.Sprintf(
		`{"metadata":{"name":%q,"uid":"u","resourceVersion":"2"},"spec":{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}}`,
		r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:],
	)
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(body)),
		Request:    r,
	}
}

// bubble is a late binder without a network, for synctest. Its kinds are claims.example.org and others.example.org.
func bubble(t *testing.T, transport patches) (b *Binder, claims, others *claimWatch) {
	t.Helper()
	config, reader := &rest.Config{Host: "http://none", QPS: -1, Transport: transport}, &controllertest.Cached{}
	registration, err := registry.NewRegistration(config, reader, reader)
	require.NoError(t, err)
	inv := registration.Inventory
	all, err := NewClaims(registration, reader, config, "")
	require.NoError(t, err)
	golds := inventory.NewClassKind(
		&v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{ClaimKinds: []v1beta1.ClaimKindLink{{Name: lateKind}, {Name: "others.example.org"}}}},
		schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false,
	)
	add := func(name string) *claimWatch {
		k := lateClaimKind(func(k *v1beta1.ClaimKind) { k.Name = name })
		compiled := selector.NewClaimKind(k)
		inv.SetClaimKind(compiled)
		w := newClaimWatch(t.Context(), compiled, claimResource, namespacesOf(t, v1beta1.LabelSelector{}), func() {})
		t.Cleanup(w.stop)
		all.kinds[name] = &watchedClaims{watch: w}
		return w
	}
	claims, others = add(lateKind), add("others.example.org")
	inv.SetClasses(labelled(golds, "gold tier=gold"))
	inv.Open()
	b = &Binder{Claims: all, Events: noEvents{}, Namespaces: namespaces{}, Rate: 100, Decider: &selector.Decider{Fresh: rand.Uint64, Now: time.Now}}
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

// TestTurns makes many claims of one namespace due, then one of another namespace, and one of another kind.
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
		time.Sleep(3 * lateRound)
		synctest.Wait()
		mu.Lock()
		after := order[before:]
		mu.Unlock()
		for _, one := range []string{"honest/claims", "evil/others"} {
			at := slices.Index(after, one)
			assert.NotEqual(t, -1, at, "We should bind %s.", one)
			assert.Less(t, at, b.Rate*3/2+2*lateWorkers, "We should bind %s in the next turn, after a round and what is under way.", one)
		}
		end()
	})
}

// TestRefused has a gate refuse the only class for a minute, or a chooser, or has the chooser not answer.
func TestRefused(t *testing.T) {
	for name, answer := range map[string]*selector.Answer{
		"Gate":        nil,
		"Chooser":     {Outcome: selector.ChooserNone},
		"Unavailable": {Outcome: selector.ChooserUnavailable, Unavailable: v1beta1.ReasonTimeout},
	} {
		t.Run(name, func(t *testing.T) { testRefused(t, answer) })
	}
}

func testRefused(t *testing.T, answer *selector.Answer) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const waiting = 50
		var open atomic.Bool
		var asked, written, events atomic.Int64
		b, claims, _ := bubble(t, func(r *http.Request) (*http.Response, error) {
			written.Add(1)
			return patched(r), nil
		})
		b.Events = noEvents{created: &events}
		b.Decider.Gates = []selector.Test{{Reason: "Full", Text: "full", Drops: func(context.Context, selector.Subject, *inventory.Class) (bool, error) {
			asked.Add(1)
			return !open.Load(), nil
		}}}
		if answer != nil {
			b.Decider.Gates, claims.kind.Rules.Shown = nil, &rules.Shown{}
			claims.kind.External = &v1beta1.External{WhenUnavailable: v1beta1.UnavailableFail}
			b.Decider.Choose = func(context.Context, *selector.Question) selector.Answer {
				asked.Add(1)
				if open.Load() {
					return selector.Answer{Outcome: selector.ChooserNoOpinion}
				}
				return *answer
			}
		}
		for i := range waiting {
			addClaim(t, claims, claimJSON(i, wantsGold, "team"))
		}
		end := b.startIn(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, written.Load(), "We should not bind to a class that is full.")
		assert.LessOrEqual(t, asked.Load(), int64(waiting*(2+time.Minute/registry.RetryAfter)), "We should ask again after a while, and not all the time.")
		assert.EqualValues(t, waiting, events.Load(), "We should notify each claim's author once.")
		open.Store(true)
		time.Sleep(registry.RetryAfter + 4*lateRound)
		synctest.Wait()
		assert.EqualValues(t, waiting, written.Load(), "We should bind once there is room.")
		end()
	})
}

// TestChooserRefuses has a chooser give no class to thousands of claims, for an hour.
func TestChooserRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refused, allowed = 2000, 300
		var asked, bound atomic.Int64
		b, claims, others := bubble(t, func(r *http.Request) (*http.Response, error) {
			bound.Add(1)
			return patched(r), nil
		})
		claims.kind.External, claims.kind.Rules.Shown = &v1beta1.External{}, &rules.Shown{}
		b.Decider.Choose = func(context.Context, *selector.Question) selector.Answer {
			asked.Add(1)
			return selector.Answer{Outcome: selector.ChooserNone}
		}
		for i := range refused {
			addClaim(t, claims, claimJSON(i, wantsGold, "team"))
		}
		for i := range allowed {
			addClaim(t, others, claimJSON(refused+i, wantsGold, "team"))
		}
		end := b.startIn(t)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, allowed, bound.Load(), "They should take no turn of another kind.")
		time.Sleep(time.Hour)
		synctest.Wait()
		before := asked.Load()
		assert.Less(t, before, int64(refused*20), "We should ask less and less.")
		b.Claims.registration.Inventory.SetClasses(labelled(b.Claims.registration.Inventory.Snapshot()[lateKind].All[0].Kind, "gold tier=gold", "other tier=gold"))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.GreaterOrEqual(t, asked.Load()-before, int64(refused), "We should ask again when classes change.")
		end()
	})
}

// TestChooserBusy has more claims of a namespace wait than may ask their chooser at once.
func TestChooserBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiting = 100
		var bound atomic.Int64
		b, claims, _ := bubble(t, func(r *http.Request) (*http.Response, error) {
			bound.Add(1)
			return patched(r), nil
		})
		claims.kind.External, claims.kind.Rules.Shown = &v1beta1.External{}, &rules.Shown{}
		limiter := fair.NewLimiter(v1beta1.StoredChooserCalls)
		b.Decider.Choose = func(ctx context.Context, q *selector.Question) selector.Answer {
			done, err := limiter.Take(ctx, q.Key)
			if err != nil {
				return selector.Answer{Outcome: selector.ChooserUnavailable, Unavailable: v1beta1.ReasonBusy, Soon: true}
			}
			defer done()
			time.Sleep(200 * time.Millisecond)
			return selector.Answer{Outcome: selector.ChooserNoOpinion}
		}
		for i := range waiting {
			addClaim(t, claims, claimJSON(i, wantsGold, "team"))
		}
		end := b.startIn(t)
		time.Sleep(15 * time.Second) // They need 5 seconds at least.
		synctest.Wait()
		assert.EqualValues(t, waiting, bound.Load(), "We should not leave the chooser idle while claims wait.")
		registry := prometheus.NewRegistry()
		registry.MustRegister(b.Claims.Metrics)
		assert.Zero(t, controllertest.Scraped(t, registry)["late_bindings_total claim_kind="+lateKind+" outcome="+lateFailed], "None failed.")
		end()
	})
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
			for i := range 3 {
				addClaim(t, claims, claimJSON(i, wantsGold))
			}
			end := b.startIn(t)
			time.Sleep(time.Minute)
			synctest.Wait()
			end()
			written := func(n int) bool { return claims.state.waiting.find("team-a", uidOf(n)).written }
			assert.False(t, written(0))
			assert.True(t, written(1) && written(2), "We should bind the other claims.")
			assert.Positive(t, calls)
			registry := prometheus.NewRegistry()
			registry.MustRegister(b.Claims.Metrics)
			assert.InDelta(
				t, calls, controllertest.Scraped(t, registry)["late_bindings_total claim_kind="+lateKind+" outcome="+latePanicked], 0,
				"We should count panics.",
			)
			assert.Less(t, calls, 10, "We should try less and less.")
		})
	})
	t.Run("Asking", func(t *testing.T) {
		w := newLateWatch(t)
		k := idle(t, w)
		addClaim(t, w, claimJSON(0, `{"classSelector":{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}}`))
		broken := selector.NewView(w.kind, nil)
		broken.Kind = nil
		k.lookAt(t, broken, 0)
		k.lookAt(t, selector.NewView(w.kind, nil), 0)
		assert.True(t, w.state.waiting.find("team-a", uidOf(0)).failed, "We should not ask again.")
		seen, _ := w.state.waiting.takeUnnotified(time.Now().Add(noticeDelay))
		note, _ := seen.note(t.Context(), broken)
		assert.Equal(t, panicText, note)
	})
	t.Run("Reading", func(t *testing.T) {
		w := newLateWatch(t)
		w.kind = &selector.ClaimKind{Reader: &claim.Reader{}} // Without its paths.
		w.kind.BindLater = true
		addClaim(t, w, claimJSON(0, wantsGold))
		assert.Equal(t, panicText, w.state.waiting.find("team-a", uidOf(0)).ask.Problem(), "We should say so to who waits.")
	})
	t.Run("TakingIn", func(t *testing.T) { // An owner that ends would make the replica hang.
		w := newLateWatch(t)
		require.Panics(t, func() { w.own(func(*claimState) { panic("a poisoned claim") }) }, "We should panic in the caller of the change.")
		addClaim(t, w, claimJSON(1, wantsGold))
		n, _ := w.counts()
		assert.Equal(t, 1, n.Waiting, "We should go on with the other claims.")
	})
}
