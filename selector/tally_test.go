package selector

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
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

// counting is a view with a strategy that counts, and classes gold-0 to gold-(n-1).
func counting(n int, change ...func(*v1beta1.ClaimKindSpec)) *View {
	k := postgres()
	k.Spec.Choice.Strategy = v1beta1.LeastClaims
	for _, f := range change {
		f(&k.Spec)
	}
	kind, classes := newKind("golds.example.org", "Gold"), make([]*inventory.Class, n)
	for i := range classes {
		classes[i] = kind.NewClass(&metav1.ObjectMeta{Name: fmt.Sprintf("gold-%d", i), Labels: map[string]string{"tier": "gold"}}, nil)
	}
	view := NewView(NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(kind, classes)})
	view.Kind.Tally = &Tally{}
	return view
}

// store gives a tally what a watch would.
func store(v *View, name, generateName string, c *inventory.Class) {
	hash := v.Kind.Demand.CountedAs(c)
	v.Kind.Tally.Bind(hash, Share{})
	v.Kind.Tally.Seen("team-a", name, generateName, [2]uint64{hash})
}

// commit a claim to a class at a time.
func commit(k *ClaimKind, c claim.Claim, class *inventory.Class, at time.Time) {
	(&Decider{Now: func() time.Time { return at }}).commit(k, c, candidate{class: class})
}

// TestBurst lets some replicas admit a thousand claims to ten classes. Each sees its own claims at once and all of them late.
func TestBurst(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		replicas int
		lag      time.Duration
		within   int
	}{
		"One":                 {"We should spread a burst evenly.", 1, 0, 2},
		"OneThatSeesLate":     {"We should count in flight what we have not seen stored.", 1, 200 * time.Millisecond, 2},
		"OneThatSeesNothing":  {"We should count all of a burst in flight.", 1, time.Hour, 2},
		"Three":               {"We should spread a burst over three replicas that see each other at once.", 3, 0, 10},
		"ThreeSoon":           {"We should not herd where replicas see each other a little late.", 3, 5 * time.Millisecond, 10},
		"ThreeLate":           {"We should not herd where replicas see each other late.", 3, 50 * time.Millisecond, 10},
		"ThreeLater":          {"We should not herd much where replicas see each other by half the burst late.", 3, 500 * time.Millisecond, 15},
		"ThreeThatSeeNothing": {"We should not herd where replicas do not see each other at all.", 3, time.Hour, 10},
	} {
		t.Run(name, func(t *testing.T) {
			worst := 0
			for seed := range uint64(20) {
				worst = max(worst, burst(t, seed, tc.replicas, tc.lag))
			}
			t.Logf("at most %d off", worst)
			assert.LessOrEqual(t, worst, tc.within, tc.reason)
		})
	}
}

func burst(t *testing.T, seed uint64, replicas int, lag time.Duration) (off int) {
	t.Helper()
	const claims, classes, every = 1000, 10, time.Millisecond
	type sight struct {
		at   time.Duration
		show func()
	}
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // It has to be reproducible.
	views := make([]*View, replicas)
	sights := make([][]sight, replicas) // in their order, as a watch has it
	for i := range views {
		views[i] = counting(classes)
	}
	total := map[string]int{}
	for _, c := range views[0].Classes[0].All() {
		total[c.Name] = int(views[0].Kind.Tally.claims(c.Place))
	}
	for i := range claims {
		now := time.Duration(i) * every
		for j := range sights {
			for len(sights[j]) > 0 && sights[j][0].at <= now {
				sights[j][0].show()
				sights[j] = sights[j][1:]
			}
		}
		view := views[random.IntN(replicas)]
		claim := claim.Claim{Namespace: "team-a", Name: fmt.Sprintf("burst-%d-%d", seed, i), Selector: gold}
		if i%3 == 0 {
			claim.Name, claim.GenerateName = "", "burst-"
		}
		d := decide(view, claim, random.Uint64(), time.Unix(0, 0).Add(now))
		require.NotNil(t, d.Class)
		total[d.Class.Name]++
		for j, v := range views {
			late := 3*time.Millisecond + time.Duration(random.Int64N(int64(lag/4+1))) + lag*3/4
			at := now + late
			if n := len(sights[j]); n > 0 {
				at = max(at, sights[j][n-1].at)
			}
			sights[j] = append(sights[j], sight{at, func() {
				store(v, fmt.Sprintf("burst-%d-%d", seed, i), claim.GenerateName, d.Class)
			}})
		}
	}
	for j, v := range views {
		for _, s := range sights[j] {
			s.show()
		}
		v.Kind.Tally.Expire(time.Unix(0, 0).Add(2 * time.Hour))
		for _, c := range v.Classes[0].All() {
			require.EqualValues(t, total[c.Name], v.Kind.Tally.claims(c.Place), "We should know of every claim, and of none twice, in the end.")
		}
	}
	counts := slices.Collect(maps.Values(total))
	sum := 0
	for _, n := range counts {
		sum += n
	}
	even := sum / classes
	return max(slices.Max(counts)-even, even-slices.Min(counts))
}

func TestInFlight(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	named := claim.Claim{Namespace: "team-a", Name: "db", Selector: gold}
	unnamed := claim.Claim{Namespace: "team-a", Selector: gold}
	reserve := func(named claim.Claim, generateName string) func(*View) {
		return func(v *View) {
			named.GenerateName = generateName
			commit(v.Kind, named, v.Classes[0].All()[0], begin)
		}
	}
	seen := func(name, generateName string, class int) func(*View) {
		return func(v *View) { store(v, name, generateName, v.Classes[0].All()[class]) }
	}
	expire := func(after time.Duration) func(*View) {
		return func(v *View) { v.Kind.Tally.Expire(begin.Add(after)) }
	}
	for name, tc := range map[string]struct {
		reason string
		steps  []func(*View)
		want   [2]int64 // of the two classes
	}{
		"Reserved":      {"We should count a claim at once.", []func(*View){reserve(named, "")}, [2]int64{1, 0}},
		"Again":         {"We should count a claim once that is tried again.", []func(*View){reserve(named, ""), reserve(named, ""), expire(0)}, [2]int64{1, 0}},
		"Seen":          {"We should count a claim once that is stored.", []func(*View){reserve(named, ""), seen("db", "", 0)}, [2]int64{1, 0}},
		"SeenElsewhere": {"We should believe the watch, which shows another class.", []func(*View){reserve(named, ""), seen("db", "", 1)}, [2]int64{0, 1}},
		"SeenAnother":   {"We should go on counting a claim when another is stored.", []func(*View){reserve(named, ""), seen("other", "", 0)}, [2]int64{2, 0}},
		"Young":         {"We should wait for a claim to be stored.", []func(*View){reserve(named, ""), expire(InFlightWindow - 1)}, [2]int64{1, 0}},
		"Expired":       {"We should forget a claim that was never stored.", []func(*View){reserve(named, ""), expire(InFlightWindow)}, [2]int64{0, 0}},
		"Unnamed":       {"We should count each claim that has no name yet.", []func(*View){reserve(unnamed, "db-"), reserve(unnamed, "db-")}, [2]int64{2, 0}},
		"UnnamedSeen": {
			"We should take one of those for the one that is stored.",
			[]func(*View){reserve(unnamed, "db-"), reserve(unnamed, "db-"), seen("db-x7f2k", "db-", 0)},
			[2]int64{2, 0},
		},
		"UnnamedNotSeen": {"We should not take one of another class for it.", []func(*View){reserve(unnamed, "db-"), seen("db-x7f2k", "db-", 1)}, [2]int64{1, 1}},
		"UnnamedExpired": {
			"We should forget all that were never stored.",
			[]func(*View){reserve(unnamed, "db-"), reserve(unnamed, "db-"), expire(InFlightWindow)},
			[2]int64{0, 0},
		},
		"SeenThenExpired": {"We should forget nothing twice.", []func(*View){reserve(named, ""), seen("db", "", 0), expire(InFlightWindow)}, [2]int64{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			v := counting(2)
			for _, step := range tc.steps {
				step(v)
			}
			classes := v.Classes[0].All()
			assert.Equal(t, tc.want, [2]int64{v.Kind.Tally.claims(classes[0].Place), v.Kind.Tally.claims(classes[1].Place)}, tc.reason)
		})
	}
}

func TestBoundTo(t *testing.T) {
	type object = map[string]any
	for name, tc := range map[string]struct {
		reason    string
		format    v1beta1.ReferenceForm
		reference any
		namespace string // of the class
		bound     bool
		counts    bool
	}{
		"None": {"We should take null for none.", v1beta1.ObjectReference, nil, "", false, false},
		"Object": {
			"We should count a class, of whatever version.", v1beta1.ObjectReference,
			object{"apiVersion": "example.org/v9", "kind": "Gold", "name": "gold"},
			"", true, true,
		},
		"ObjectOfANamespace": {
			"We should count a class of a namespace.", v1beta1.ObjectReference,
			object{"apiVersion": "example.org/v1", "kind": "Gold", "namespace": "other", "name": "gold"},
			"other", true, true,
		},
		"ObjectElsewhere": {
			"We should distinguish namespaces.", v1beta1.ObjectReference,
			object{"apiVersion": "example.org/v1", "kind": "Gold", "namespace": "other", "name": "gold"},
			"", true, false,
		},
		"Typed": {
			"We should count a cluster-scoped class.", v1beta1.TypedLocalObjectReference,
			object{"apiGroup": "example.org", "kind": "Gold", "name": "gold"},
			"", true, true,
		},
		"ObjectPruned": {
			"We should count a class of the claim's namespace, where the API server does not store it.",
			v1beta1.ObjectReference,
			object{"apiVersion": "example.org/v1", "kind": "Gold", "name": "gold"},
			"team-a", true, true,
		},
		"ObjectPrunedOfNone": {
			"We should not count a class of another namespace than the claim's.",
			v1beta1.ObjectReference,
			object{"apiVersion": "example.org/v1", "kind": "Gold", "name": "gold"},
			"team-b", true, false,
		},
		"GroupKind": {
			"We should read the group from its field.", v1beta1.GroupKindReference,
			object{"group": "example.org", "kind": "Gold", "name": "gold"},
			"", true, true,
		},
		"Kind": {"We should count a class by its Kind.", v1beta1.KindReference, object{"kind": "Gold", "name": "gold"}, "team-a", true, true},
		"Namespaced": {
			"We should count a class by namespace and name.", v1beta1.NamespacedReference,
			object{"namespace": "other", "name": "gold"},
			"other",
			true, true,
		},
		"Local":     {"We should count a class that is named alone.", v1beta1.LocalObjectReference, object{"name": "gold"}, "", true, true},
		"Name":      {"We should count a class that is named as text.", v1beta1.Name, "gold", "team-a", true, true},
		"EmptyName": {"We should take an empty name for none.", v1beta1.Name, "", "", false, false},
		"Text":      {"We should take whatever is set for a reference.", v1beta1.ObjectReference, "gold", "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(func(s *v1beta1.ClaimKindSpec) { s.Reference.Form = tc.format })
			class := newKind("golds.example.org", "Gold").NewClass(&metav1.ObjectMeta{Namespace: tc.namespace, Name: "gold"}, nil)
			raw, err := json.Marshal(object{"spec": object{"classRef": tc.reference}})
			require.NoError(t, err)
			claim, err := kind.Reader.DecodeValid(raw)
			require.NoError(t, err)
			classes, bound := kind.Reader.Reference.BoundTo("team-a", claim)
			assert.Equal(t, tc.bound, bound, tc.reason)
			assert.Equal(t, tc.counts, slices.Contains(classes[:], kind.Demand.CountedAs(class)), tc.reason)
		})
	}
}

// TestTallyGrows under readers and writers, some of which take their claims off again.
func TestTallyGrows(t *testing.T) {
	const classes = 5000
	tally := &Tally{}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range classes {
				class := mix(uint64((i*7+worker*13)%classes) + 1) //nolint:gosec // It is not negative.
				tally.Bind(class, Share{})
				tally.claims(class)
				tally.Unbind(tally.Bind(mix(uint64(classes+i)), Share{}), claim.Usage{})
			}
		})
	}
	all.Wait()
	for i := range classes {
		require.EqualValues(t, 4, tally.claims(mix(uint64(i)+1)), "We should lose no claim while others come and go.")
	}
	counts := 0
	tally.counts.Range(func(any, any) bool { counts++; return true })
	assert.Equal(t, classes, counts, "We should forget the classes that have no claims any more.")
}

func TestChooseAllocatesNoMoreForCounting(t *testing.T) {
	allocations := func(v *View) float64 {
		c := claim.Claim{Namespace: "team-a", Name: "db", Selector: gold}
		return cost.Allocs(func() { choose(v, c, 1) })
	}
	random := counting(10, spec(`{choice: {strategy: WeightedRandom}}`))
	assert.InDelta(t, allocations(random), allocations(counting(10)), 0, "We should allocate nothing to count.")
}

// TestLeastClaims breaks ties by the weighted draw, with the seed.
func TestLeastClaims(t *testing.T) {
	claimOf := func(i int) claim.Claim {
		return claim.Claim{Namespace: "team-a", Name: fmt.Sprint("claim-", i), Selector: gold}
	}
	least := counting(10)
	random := counting(10, spec(`{choice: {strategy: WeightedRandom}}`))
	for i := range 100 {
		assert.Equal(t, choose(random, claimOf(i), 0).Class.Name, choose(least, claimOf(i), 0).Class.Name, "We should draw among equals as by weight.")
	}
	for _, c := range least.Classes[0].All()[1:] {
		least.Kind.Tally.Bind(c.Place, Share{})
	}
	for i := range 100 {
		assert.Equal(t, "gold-0", choose(least, claimOf(i), 0).Class.Name, "We should choose the class with the fewest claims.")
	}
	assert.EqualValues(t, 1, least.Kind.BoundClaims(least.Classes[0].All()[1]), "We should report how many claims a class has.")
	least.Kind.Tally = nil
	assert.NotNil(t, choose(least, claimOf(0), 0).Class, "We should choose where nothing is counted, as offline.")
}

// inTurn is a claim kind, as one replica has it.
func inTurn() *ClaimKind {
	return kindOf(spec(`{choice: {strategy: RoundRobin}}`))
}

// next decides on a claim permanently.
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
	return NewView(kind, []*inventory.Classes{inventory.NewClasses(k, all)})
}

func asks(i int, tier string) claim.Claim {
	return claim.Claim{Namespace: "team", Name: fmt.Sprintf("claim-%05d", i), Selector: labels.SelectorFromSet(labels.Set{tier: "true"})}
}

func TestRoundRobin(t *testing.T) {
	view := NewView(inTurn(), []*inventory.Classes{
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
	view := NewView(inTurn(), []*inventory.Classes{manyClasses("as.example.org", 20, 7)})
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
		require.True(t, turns.commit("", &inventory.Class{Place: class}, 0))
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

// elsewhere is what a function returns in a process with another seed.
func elsewhere(of func() []uint64) []uint64 {
	seed := claim.Seed
	defer func() { claim.Seed = seed }()
	claim.Seed = maphash.MakeSeed()
	return of()
}

// TestCraftedTally plays authors who make up names so that one is counted for another.
func TestCraftedTally(t *testing.T) {
	keys := func() []uint64 {
		gold := newKind("golds.example.org", "Gold").NewClass(&metav1.ObjectMeta{Name: "gold"}, nil)
		all := []uint64{claimHash("team", "db", "", 0), claimHash("team", "", "db-", 1), Share{isLimited: true, namespace: "team"}.key(1)}
		for _, form := range claim.Forms {
			all = append(all, kindOf(func(s *v1beta1.ClaimKindSpec) { s.Reference.Form = form.Name }).Demand.CountedAs(gold))
		}
		return all
	}
	here := keys()
	for i, key := range elsewhere(keys) {
		assert.NotEqual(t, here[i], key, "Nobody should know the key %d of a count.", i)
	}
}

// TestCraftedTurns does the same with the turns of classes.
func TestCraftedTurns(t *testing.T) {
	keys := func() (all []uint64) {
		turns := &turns{}
		gold := newKind("golds.example.org", "Gold").NewClass(&metav1.ObjectMeta{Name: "gold"}, nil)
		require.True(t, turns.commit("", gold, 0))
		turns.last.Range(func(key, _ any) bool {
			all = append(all, key.(uint64))
			return true
		})
		return all
	}
	assert.NotEqual(t, keys(), elsewhere(keys), "Nobody should know the key of a turn.")
}

// TestManyOfOneGenerateName plays an author whose many claims are admitted at once.
func TestManyOfOneGenerateName(t *testing.T) {
	v := counting(2)
	classes := v.Classes[0].All()
	const claims = 50_000
	claim := claim.Claim{Namespace: "team-a", GenerateName: "db-", Selector: gold}
	for range claims {
		commit(v.Kind, claim, classes[0], time.Unix(0, 0))
	}
	for i := range claims {
		store(v, fmt.Sprint("db-", i), "db-", classes[1]) // Of another replica.
		store(v, fmt.Sprint("db-", claims+i), "db-", classes[0])
	}
	assert.EqualValues(t, claims, v.Kind.Tally.claims(classes[0].Place), "We should count each once.")
	assert.EqualValues(t, claims, v.Kind.Tally.claims(classes[1].Place))
}
