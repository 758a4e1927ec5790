package selector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
)

// inTurn is a claim kind, as one replica has it.
func inTurn() *ClaimKind {
	k := postgres()
	k.Spec.Choice.Strategy = v1beta1.RoundRobin
	return NewClaimKind(k)
}

// next decides on a claim for good.
func next(t *testing.T, view *View, c claim.Claim, fresh uint64) string {
	t.Helper()
	d := decide(view, c, fresh, time.Time{})
	require.NotNil(t, d.Class)
	return d.Class.String()
}

// tiers is a view of classes that are each of one or two tiers, by "name tier tier".
func tiers(kind *ClaimKind, classes map[string][]string) *View {
	k := newKind("as.example.org", "A")
	var all []*inventory.Class
	for name, tiers := range classes {
		has := map[string]string{}
		for _, tier := range tiers {
			has[tier] = "true"
		}
		all = append(all, k.NewClass(&metav1.ObjectMeta{Name: name, Labels: has}, nil))
	}
	return newView(kind, []*inventory.Classes{inventory.NewClasses(k, all)})
}

func asks(i int, tier string) claim.Claim {
	return claim.Claim{Namespace: "team", Name: fmt.Sprintf("claim-%05d", i), Selector: labels.SelectorFromSet(labels.Set{tier: "true"})}
}

func TestRoundRobin(t *testing.T) {
	view := newView(inTurn(), []*inventory.Classes{
		manyClasses("as.example.org", 200, 6), manyClasses("bs.example.org", 90, 3), manyClasses("cs.example.org", 10, 1),
	})
	var order []string
	for i := range 10 {
		order = append(order, next(t, view, nthClaim(i), 0))
	}
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(order))), 10, "We should give each class of each kind one turn.")
	for i := range 100 {
		require.Equal(t, order[i%10], next(t, view, nthClaim(10+i), 0), "We should go through the classes in turn, again and again.")
	}
	before := choose(view, nthClaim(0), 0)
	assert.Equal(t, before.Class, choose(view, nthClaim(0), 0).Class, "We should take no turn for asking.")
	assert.Equal(t, order[0], before.Class.String(), "We should say who is next.")
}

func TestRoundRobinAmongSeveralSelectors(t *testing.T) {
	view := tiers(inTurn(), map[string][]string{"gold-0": {"gold"}, "gold-1": {"gold"}, "iron-0": {"iron"}, "iron-1": {"iron"}})
	got := map[string]int{}
	for i := range 400 {
		got[next(t, view, asks(i, []string{"gold", "iron"}[i%2]), 0)]++
	}
	assert.Equal(t, map[string]int{"A/gold-0": 100, "A/gold-1": 100, "A/iron-0": 100, "A/iron-1": 100}, got,
		"We should give turns to the classes of each selector, however claims come by turns themselves.")

	view = tiers(inTurn(), map[string][]string{"a": {"any", "fast"}, "b": {"any"}})
	got = map[string]int{}
	for i := range 400 {
		got[next(t, view, asks(i, []string{"any", "fast"}[i%2]), 0)]++
	}
	assert.InDelta(t, 200, got["A/b"], 1, "We should spare a class that others ask for, too.")
}

func TestRoundRobinAmongClassesThatChange(t *testing.T) {
	kind := inTurn()
	classes := map[string][]string{"a": {"any"}, "b": {"any"}, "c": {"any"}}
	view := tiers(kind, classes)
	var order []string
	for i := range 3 {
		order = append(order, next(t, view, asks(i, "any"), 0))
	}
	view = tiers(kind, classes) // Each is a new *Class, as after an update.
	assert.Equal(t, order[0], next(t, view, asks(3, "any"), 0), "We should know a class that was updated.")
	classes["d"] = []string{"any"}
	view = tiers(kind, classes)
	assert.Equal(t, "A/d", next(t, view, asks(4, "any"), 0), "We should give a new class its turn first.")
	assert.Equal(t, order[1], next(t, view, asks(5, "any"), 0), "We should then go on where we were.")
	delete(classes, order[2][len("A/"):])
	view = tiers(kind, classes)
	assert.Equal(t, order[0], next(t, view, asks(6, "any"), 0), "We should pass over a class that is gone.")
}

// Replicas that restart often see only a few claims each.
func TestRoundRobinBeginsAnywhere(t *testing.T) {
	got, shares := map[string]int{}, map[string]float64{}
	classes := map[string][]string{}
	for i := range 10 {
		classes[fmt.Sprint("class-", i)] = []string{"any"}
		shares[fmt.Sprint("A/class-", i)] = 0.1
	}
	for i := range 2000 {
		got[next(t, tiers(inTurn(), classes), asks(i, "any"), 0)]++
	}
	assertShares(t, got, shares, "We should not begin with the same class at each start")
}

func TestRoundRobinOfSeveralReplicas(t *testing.T) {
	const replicas = 3
	classes := map[string][]string{"a": {"any"}, "b": {"any"}, "c": {"any"}, "d": {"any"}}
	var views []*View
	for range replicas {
		views = append(views, tiers(inTurn(), classes))
	}
	random, got := rand.New(rand.NewPCG(9, 10)), map[string]int{} //nolint:gosec // It has to be reproducible.
	for i := range 2000 {
		got[next(t, views[random.IntN(replicas)], asks(i, "any"), 0)]++
		least, most := 1<<30, 0
		for name := range classes {
			least, most = min(least, got["A/"+name]), max(most, got["A/"+name])
		}
		require.LessOrEqual(t, most-least, replicas, "We should keep what we promise at any time.")
	}
}

func TestRoundRobinAtOnce(t *testing.T) {
	view := newView(inTurn(), []*inventory.Classes{manyClasses("as.example.org", 20, 7)})
	var given [7]atomic.Int64
	var working sync.WaitGroup
	const workers, each = 8, 500
	for w := range workers {
		working.Go(func() {
			for i := range each {
				name := next(t, view, nthClaim(w*each+i), uint64(i))
				given[name[len(name)-1]-'0'].Add(1)
			}
		})
	}
	working.Wait()
	for i := range given {
		assert.InDelta(t, workers*each/7.0, given[i].Load(), 1, "We should give no turn twice to claims that come at once.")
	}
}

func TestTurnsAreForgotten(t *testing.T) {
	turns := &turns{}
	for class := range uint64(3 * v1beta1.MaxTurns) {
		require.True(t, turns.take(class, 0))
		require.LessOrEqual(t, turns.size.Load(), int64(v1beta1.MaxTurns), "We should not remember every class that there ever was.")
	}
	n := 0
	turns.last.Range(func(any, any) bool { n++; return true })
	assert.EqualValues(t, turns.size.Load(), n)
	assert.EqualValues(t, 3*v1beta1.MaxTurns, -turns.rank("", &inventory.Class{Place: 3*v1beta1.MaxTurns - 1}), "We should remember the latest.")
	assert.Zero(t, turns.rank("", &inventory.Class{Place: 0}), "We should forget the oldest.")
}

func TestTurnsAreNotForgottenAsTheyAreTaken(t *testing.T) {
	turns := &turns{}
	turns.now.Store(v1beta1.MaxTurns)
	taken := new(atomic.Int64)
	turns.last.Store(uint64(1), taken)
	turns.forget()
	taken.Store(v1beta1.MaxTurns + 1)
	assert.EqualValues(t, v1beta1.MaxTurns+1, -turns.rank("", &inventory.Class{Place: 1}), "We should know of a turn that was being taken as we forgot others.")
}

func TestRoundRobinAllocatesNothing(t *testing.T) {
	offered := []*inventory.Classes{manyClasses("as.example.org", 20, 7)}
	allocations := func(kind *ClaimKind) float64 {
		view := newView(kind, offered)
		for i := range 100 {
			next(t, view, nthClaim(i), 0)
		}
		return cost.Allocs(func() { decide(view, nthClaim(1), 0, time.Time{}) })
	}
	assert.InDelta(t, allocations(NewClaimKind(postgres())), allocations(inTurn()), 0, "We should not allocate in order to take turns.")
}

func BenchmarkRoundRobin(b *testing.B) {
	view := newView(inTurn(), []*inventory.Classes{inventory.NewClasses(crowd("as.example.org", 100_000, 0, 1))})
	require.Equal(b, 10, choose(view, nthClaim(1), 0).Candidates)
	b.ReportAllocs()
	decider, in := &Decider{}, claim.Intake{Claim: nthClaim(1)}
	for b.Loop() {
		_, _ = decider.Decide(b.Context(), view, in, Admit)
	}
}
