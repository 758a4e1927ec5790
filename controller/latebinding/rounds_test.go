package latebinding

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// idle returns a binder of a watch that runs only when the test calls it.
func idle(t testing.TB, w *claimWatch) *kindBinder {
	t.Helper()
	b := &Binder{Claims: &Claims{}, Events: noEvents{}, Rate: 1}
	b.Claims.Metrics = NewMetrics(b.Claims)
	k := b.newKindBinder(t.Context(), w)
	t.Cleanup(k.queue.ShutDown)
	w.own(func(s *claimState) { s.useBinder(b) })
	return k
}

// lookAt has a round with a view, at once, and returns how many claims it hands to the writers.
func (k *kindBinder) lookAt(t testing.TB, view *selector.View, freed uint64) int {
	t.Helper()
	before := k.queue.Len()
	k.watch.own(func(s *claimState) {
		s.rounds.next = time.Time{}
		require.Positive(t, s.begin(view, freed, time.Now()))
	})
	k.look(t.Context(), view, time.Now(), time.Minute)
	return k.queue.Len() - before
}

func TestRoundsFindWhatIsDue(t *testing.T) {
	w := newLateWatch(t)
	k := idle(t, w)
	add := func(uid int, tier string) {
		addClaim(t, w, claimJSON(uid, `{"classSelector":{"matchLabels":{"tier":"`+tier+`"}}}`))
	}
	for i := range 100 {
		add(i, strconv.Itoa(i%4))
	}
	golds := controllertest.NewClassKind("golds.example.org", "Gold")
	view := func(classes ...string) *selector.View {
		return selector.NewView(w.kind, []*inventory.Classes{labelled(golds, classes...)})
	}
	assert.Zero(t, k.lookAt(t, view(), 0), "We should find nothing to bind without classes.")
	one := view("one tier=1")
	assert.Equal(t, 25, k.lookAt(t, one, 0), "We should find the claims whose selector matches now.")
	assert.Zero(t, k.lookAt(t, one, 0), "We should give out no claim twice for the same classes.")
	assert.Zero(t, k.lookAt(t, view("one tier=1", "uno tier=1"), 0), "We should give out no claim twice for more classes.")
	two := view("one tier=1", "two tier=2")
	assert.Equal(t, 25, k.lookAt(t, two, 0), "We should find those of the other selector, and only those.")
	add(1001, "1")
	assert.Equal(t, 1, k.lookAt(t, two, 0), "We should find a claim that comes later.")
	missed := w.state.waiting.find("team-a", uidOf(1))
	w.state.missed(missed.seenVersion, &selector.Decision{})
	assert.True(t, missed.due, "We should look again at a claim that was missed while the classes were not known.")
	assert.Equal(t, 1, k.watch.state.waiting.due.Len())
}

// TestRoundsArePaced has classes change all the time, and then not for a minute.
func TestRoundsArePaced(t *testing.T) {
	w := newLateWatch(t)
	addClaim(t, w, claimJSON(1, wantsGold))
	view, now := selector.NewView(w.kind, nil), time.Now()
	begins := func(after time.Duration, changed bool) (most time.Duration) {
		now = now.Add(after)
		if changed {
			view = selector.NewView(w.kind, nil)
		}
		w.state.waiting.takeDue(1)
		return w.state.begin(view, 0, now)
	}
	require.Positive(t, begins(0, true), "We should look at the first view at once.")
	w.state.rounds.next = now.Add(12 * time.Second) // The round took 1.2 s.
	for range 11 {
		require.Zero(t, begins(time.Second, true), "We should rest while classes change.")
	}
	require.Equal(t, lookTime, begins(time.Second, true))
	w.state.rounds.next = now.Add(10 * time.Minute)
	require.Zero(t, begins(quietTime, false), "We should have no round without a change.")
	require.Equal(t, quietLook, begins(0, true), "We should look at once after a quiet minute.")
	assert.Equal(t, 1, w.state.waiting.due.Len(), "We should look at all claims then.")
}

func TestRoundsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLateWatch(t)
		k, view := idle(t, w), selector.NewView(w.kind, nil)
		fillNamespaces(t, w, 3*lookBatch)
		first := map[string]bool{}
		for _, seen := range w.state.waiting.takeDue(50) {
			first[seen.namespace] = true
		}
		assert.Len(t, first, 50, "We should look at one of each namespace first.")
		k.look(t.Context(), view, time.Now().Add(-lookTime), lookTime)
		assert.Equal(t, 3*lookBatch-50, w.state.waiting.due.Len(), "We should look no longer than we may.")
		assert.Equal(t, (roundRest-1)*lookTime, time.Until(w.state.rounds.next), "We should rest ten times as long as that.")
		k.look(t.Context(), view, time.Now(), lookTime)
		assert.Zero(t, w.state.waiting.due.Len(), "We should go on where we ended.")
	})
}

func TestFullClaimsWaitForRoom(t *testing.T) {
	used := int64(5)
	classKind := &v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{Capacity: []v1beta1.Capacity{{Name: v1beta1.ClaimsQuantity}}}}
	kind := selector.NewClaimKind(lateClaimKind(), classKind)
	kind.Tally, kind.Room = &selector.Tally{}, func(string, *inventory.Class) selector.Room { return selector.Room{{Used: used}} }
	w := newLateWatchOf(t, kind)
	k := idle(t, w)
	for i := range 100 {
		addClaim(t, w, claimJSON(i, wantsGold))
	}
	addClaim(t, w, claimJSON(100, `{"classSelector":{"matchLabels":{"tier":"none"}}}`))
	golds := inventory.NewClassKind(classKind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	gold := labelled(golds, "gold tier=gold")
	gold.Find("", "gold").Capacity[0].Total = 5
	view := selector.NewView(kind, []*inventory.Classes{gold})
	assert.Zero(t, k.lookAt(t, view, 0), "We should give out no claim that no class has room for.")
	used = 0
	assert.Zero(t, k.lookAt(t, view, 0), "We should ask nothing while nothing has changed.")
	w.state.rounds.next = time.Time{}
	require.Positive(t, w.state.begin(view, 1, time.Now()))
	assert.Equal(t, 100, w.state.waiting.due.Len(), "We should ask again about the claims that wait for room, and no others.")
	assert.Equal(t, 100, k.lookAt(t, view, 1))
	item, _ := k.queue.Get()
	seen, waits, _ := w.waits(item)
	assert.True(t, waits)
	used = 5 // Others were faster.
	k.queue.Done(item)
	d, err := preview(t.Context(), view, seen)
	require.NoError(t, err)
	w.state.missed(seen, &d)
	_, waits, _ = w.waits(item)
	assert.False(t, waits)
	assert.Zero(t, k.lookAt(t, view, 1), "We should ask no more about it.")
	used = 0
	assert.Equal(t, 1, k.lookAt(t, view, 2), "We should ask again once there is room again.")
	d, err = preview(t.Context(), view, seen)
	require.NoError(t, err)
	d.Class, d.Choice.Outcome = nil, selector.ChooserOrdered
	w.state.taken(seen, &d)
	_, waits, _ = w.waits(item)
	assert.True(t, waits, "A claim whose class was taken while its chooser was asked should be tried again later.")
	for k.queue.Len() > 0 {
		item, _ = k.queue.Get()
		k.queue.Done(item)
	}
	assert.Equal(t, 1, k.lookAt(t, view, 3), "And at once, when there is room again.")
}

// TestSweep has more claims wait than are held, of several namespaces, when a new leader begins.
func TestSweep(t *testing.T) {
	const evil, limit = 40, 10
	s := newClaimServer(t)
	classes := []string{"gold tier=gold"}
	for i := range evil {
		s.set(t, fmt.Sprintf("evil/claim-%02d", i), selecting(i, 20))
		classes = append(classes, fmt.Sprintf("evil-%02d only-%06d=%s", i, i, strings.Repeat("x", 60)))
	}
	for i := range 3 {
		s.set(t, fmt.Sprintf("honest/claim-%d", i), `{"classSelector":{"matchLabels":{"tier":"silver"}}}`)
	}
	s.refuse("watchlist", http.StatusUnprocessableEntity) // A list has the namespaces in order.
	s.refuse("list", http.StatusForbidden)
	r := newLateReplica(t, s, lateClaimKind())
	w := r.claims.watches()[lateKind]
	w.own(func(s *claimState) { s.waiting.limit = limit })
	s.refuse("list", 0)
	r.awaitCounts(t, ClaimCounts{Waiting: evil + 3, Left: evil + 3 - limit})
	r.lead(t)
	eventually(t, "We should give each namespace a fair part.", func(c *assert.CollectT) {
		w.own(func(s *claimState) { assert.NotNil(c, s.waiting.namespaces["honest"]) })
	})
	s.set(t, "honest/claim-4", wantsGold)
	r.registration.Inventory.SetClasses(labelled(r.golds, classes[:3]...))
	eventually(t, "We should bind at once what is held.", func(c *assert.CollectT) { assert.Equal(c, "gold", s.classes()["honest/claim-4"]) })
	sweepUntil := func(reason string, is func(c *assert.CollectT, s *claimState) bool) {
		t.Helper()
		eventually(t, reason, func(c *assert.CollectT) {
			w.own(func(s *claimState) {
				if !is(c, s) {
					s.swept = time.Time{}
				}
			})
		})
	}
	sweepUntil("We should bind what has a class in place of what has none.", func(c *assert.CollectT, s *claimState) bool {
		return assert.Len(c, s.bound.counts, 3)
	})
	r.registration.Inventory.SetClasses(labelled(r.golds, classes...))
	sweepUntil("We should find all in the end, and sweep no more.", func(c *assert.CollectT, s *claimState) bool {
		return assert.Equal(c, []any{evil + 1, 3, false}, []any{len(s.bound.counts), s.waiting.weight, s.waiting.partial})
	})
	for claim, n := range s.patches {
		assert.Equal(t, 1, n, "We should write %s once.", claim)
	}
}

// TestSweepFindsWhatChanges has the watch show that a claim changes or goes after a sweep has read it, and before it is held.
func TestSweepFindsWhatChanges(t *testing.T) {
	s := newClaimServer(t)
	r := newLateReplica(t, s, lateClaimKind())
	w, k := r.claims.watches()[lateKind], r.kindBinder(t)
	s.set(t, "team-a/claim", wantsGold)
	r.awaitCounts(t, ClaimCounts{Waiting: 1})
	var seen seenVersion
	w.own(func(s *claimState) { s.waiting.each(func(c *waitingClaim) { seen = c.seenVersion }) })
	for i, change := range []func(){
		func() {},
		func() { s.set(t, "team-a/claim", `{"note":"changed","classSelector":{}}`) },
		func() { s.remove("team-a/claim") },
	} {
		change()
		is, err := k.unchanged(t.Context(), seen)
		require.NoError(t, err)
		assert.Equal(t, i == 0, is, "We should see that it is not what we have seen.")
	}
	r.awaitCounts(t, ClaimCounts{})
	w.own(func(s *claimState) { require.True(t, s.waiting.hold(&waitingClaim{seenVersion: seen})) })
	k.giveBack(seen)
	r.awaitCounts(t, ClaimCounts{})
}

// TestOneNamespaceHoldsUpNobody has the API server refuse all writes of a namespace with very many claims, for the claim or for now.
func TestOneNamespaceHoldsUpNobody(t *testing.T) {
	for code, most := range map[int]int{http.StatusUnprocessableEntity: 8, http.StatusTooManyRequests: 5, http.StatusConflict: 8} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var honest atomic.Int64
				var tries sync.Map
				const failure = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":"Invalid","details":{"kind":"Claim","causes":[{"message":"no"}]}}`
				b, w, _ := bubble(t, func(r *http.Request) (*http.Response, error) {
					if !strings.Contains(r.URL.Path, "/evil/") {
						honest.Add(1)
						return patched(r), nil
					}
					n, _ := tries.LoadOrStore(r.URL.Path, new(atomic.Int64))
					assert.LessOrEqual(t, n.(*atomic.Int64).Add(1), int64(most), "We should try less and less, and wait as long as we are asked to.")
					header := http.Header{"Content-Type": {"application/json"}, "Retry-After": {"30"}}
					return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(fmt.Sprintf(failure, code))), Request: r}, nil
				})
				for i := range 5000 {
					addClaim(t, w, claimJSON(i, wantsGold, "evil"))
				}
				end := b.startIn(t)
				for i := range 20 {
					time.Sleep(5 * time.Second)
					addClaim(t, w, claimJSON(10_000+i, wantsGold, "honest-"+strconv.Itoa(i%4)))
					time.Sleep(2 * time.Second) // A round, and what is under way.
					synctest.Wait()
					assert.EqualValues(t, i+1, honest.Load(), "We should bind the claims of others.")
				}
				end()
			})
		})
	}
}

// TestManyNamespaces has very many claims wait in 500 namespaces; one has most.
func TestManyNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bound atomic.Int64
		b, w, _ := bubble(t, func(r *http.Request) (*http.Response, error) {
			bound.Add(1)
			return patched(r), nil
		})
		fillNamespaces(t, w, 10_000)
		inv := b.Claims.registration.Inventory
		golds := inv.Snapshot()[lateKind].Classes[0].Kind
		end := b.startIn(t)
		for i := range 4 {
			time.Sleep(quietTime)
			for n := range i % 2 * 10 { // Or with a change a second.
				inv.SetClasses(labelled(golds, fmt.Sprint("other-", n)))
				time.Sleep(time.Second)
			}
			inv.SetClasses(labelled(golds, fmt.Sprintf("one only-%06d=%s", 6000+i*999, strings.Repeat("x", 60))))
			time.Sleep(2 * time.Second)
			synctest.Wait()
			assert.EqualValues(t, i+1, bound.Load(), "We should bind it within two seconds.")
		}
		end()
	})
}

// fillNamespaces adds so many claims in 500 namespaces. Each has a selector of its own, and most are of one namespace.
func fillNamespaces(t testing.TB, w *claimWatch, claims int) {
	t.Helper()
	for i := range claims {
		namespace := "evil"
		if i >= claims*6/10 {
			namespace = fmt.Sprint("honest-", i%499)
		}
		addClaim(t, w, claimJSON(i, selecting(i, 20), namespace))
	}
}

// BenchmarkRound looks at 100,000 claims that wait, and says how much memory they take.
func BenchmarkRound(b *testing.B) {
	w := newLateWatch(b)
	before := heap()
	fillNamespaces(b, w, 100_000)
	held := heap() - before
	k := idle(b, w)
	classes := make([]string, 1000)
	for i := range classes {
		classes[i] = fmt.Sprintf("class-%d tier=%d", i, i)
	}
	golds := labelled(controllertest.NewClassKind("golds.example.org", "Gold"), classes...)
	for b.Loop() {
		k.lookAt(b, selector.NewView(w.kind, []*inventory.Classes{golds}), 0)
	}
	b.ReportMetric(float64(held)/(1<<20), "MiB")
	b.ReportMetric(float64(w.state.waiting.weight), "claims")
}
