package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	scoresGroup = "scores.test"
	// scoresGrace is how long a score may count after it has expired: it is absent within a second. Others are for a machine that does much
	// else.
	scoresGrace = 3 * time.Second
	// scoresAfter is a cost that no price has that a claim may get.
	scoresAfter = 1_000_000
)

// scored is what the prices of a market are, and which class names which price.
type scored struct {
	prices  map[string]scoredPrice
	classes map[string]string
}

type scoredPrice struct {
	cost, weight, room int
	open               bool
	until              time.Time
}

// best are the classes that a claim may get at a time: those of the cheapest price that counts.
func (s *scored) best(at time.Time) (best []string) {
	lowest := 0
	for class, name := range s.classes {
		p, ok := s.prices[name]
		if !ok || !p.open || p.weight == 0 || p.room == 0 || !p.until.After(at) {
			continue
		}
		if len(best) > 0 && p.cost > lowest {
			continue
		}
		if len(best) > 0 && p.cost < lowest {
			best = nil
		}
		best, lowest = append(best, class), p.cost
	}
	if len(best) == 0 {
		return []string{""}
	}
	return best
}

// scoredChange is a state, when it began at the earliest, and when the replica had it.
type scoredChange struct {
	scored
	asked, done time.Time
}

type scoredClaim struct {
	began, ended time.Time
	class        string
}

// allowed are the classes that a claim may have got: by a state that was in force when it was decided on, or less than this before.
func (c *scoredClaim) allowed(changes []scoredChange, before time.Duration) (all []string) {
	from, to := c.began.Add(-before), c.ended
	for i := range changes {
		begin, end := changes[i].asked, to
		if i+1 < len(changes) {
			end = changes[i+1].done
		}
		if begin.After(to) || end.Before(from) {
			continue
		}
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		at := []time.Time{begin, end}
		for _, p := range changes[i].prices {
			if p.until.After(begin) && p.until.Before(end) {
				at = append(at, p.until)
			}
		}
		for _, t := range at {
			all = append(all, changes[i].best(t)...)
		}
	}
	return all
}

// age of the newest state by which a claim may have got its class, in steps of a tenth of a second.
func (c *scoredClaim) age(changes []scoredChange) (age time.Duration) {
	for age < time.Minute && !slices.Contains(c.allowed(changes, age), c.class) {
		age += 100 * time.Millisecond
	}
	return age
}

// TestClassRelated changes prices and scores that classes name, the classes, and whether the objects exist, while their time passes. No
// claim is decided on against what a watch reported.
func TestClassRelated(t *testing.T) {
	w := sharedWorld(t)
	changes, claims := 2000, 4500
	if testing.Short() {
		changes, claims = 120, 675
	}
	w.resources(t,
		"Claim claims."+scoresGroup+" Namespaced", "Class classes."+scoresGroup+" Cluster", "Price prices."+scoresGroup+" Cluster")
	w.serves(t, vendor(scoresGroup)+
		claimKind("claims."+scoresGroup, "{choice: {strategy: LowestScore, score: classRelated.price.spec.cost}}")+
		classKind("classes."+scoresGroup, fmt.Sprintf(`{claimKinds: [{name: claims.%[1]s}],
  related: [{name: price, resource: prices.%[1]s, nameExpression: class.spec.price, validUntil: object.spec.until}],
  fits: [{name: Open, expression: classRelated.price.spec.open}],
  weight: {expression: "has(classRelated.price) ? classRelated.price.spec.weight : 0"},
  capacity: [{name: claims, total: {expression: classRelated.price.spec.room}}]}`, scoresGroup)))

	moved := w.moveScores(t)
	var mu sync.Mutex // guards both below
	var decided []scoredClaim
	left := claims
	decide := func(worker int) {
		for {
			mu.Lock()
			n := left
			left--
			mu.Unlock()
			if n <= 0 {
				return
			}
			c := scoredClaim{began: time.Now()}
			class, err := w.scoredClass(t, fmt.Sprintf("claim-%d-%d", worker, n), "score")
			c.class, c.ended = class, time.Now()
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			decided = append(decided, c)
			mu.Unlock()
		}
	}
	var workers sync.WaitGroup
	for worker := range 3 {
		workers.Go(func() { decide(worker) })
	}
	states := w.changeScores(t, changes, moved)
	workers.Wait()

	require.Len(t, decided, claims)
	against, bound, oldest := 0, 0, time.Duration(0)
	for _, c := range decided {
		if c.class != "" {
			bound++
		}
		age := c.age(states)
		if oldest = max(oldest, age); age > scoresGrace {
			against++
			t.Errorf("A claim of %v got %q by a state that ended %v before.", c.began, c.class, age)
		}
	}
	t.Logf("%d changes, %d claims, %d of them bound: %d decided against what a watch had reported, the oldest state ended %v before",
		changes, claims, bound, against, oldest)
	assert.Greater(t, bound, claims/10, "The test should bind claims.")
}

// scoredClass is the class that a claim gets now which selects classes by the label for.
func (w *world) scoredClass(t *testing.T, name, use string) (class string, err error) {
	claim, _, err := w.create(t, claimWith(scoresGroup, name, "{classSelector: {matchLabels: {for: "+use+"}}}"), client.DryRunAll)
	if err == nil {
		_, class, _ = strings.Cut(classOf(claim), "/")
	}
	return class, err
}

// moveScores returns a function that waits until the replica has all changes of a kind that were made before. A watch reports them in order,
// so it is the last when another class is the cheapest of two.
func (w *world) moveScores(t *testing.T) (moved func(kind string)) {
	price := func(name string, cost int) {
		spec := fmt.Sprintf("{cost: %d, weight: 1, room: 1, open: true, until: %q}", scoresAfter+cost, "2100-01-01T00:00:00Z")
		require.NoError(t, w.writeScore(t.Context(), "Price", name, "", spec))
	}
	class := func(name, use, priceOf string) {
		require.NoError(t, w.writeScore(t.Context(), "Class", name, use, "{price: "+priceOf+"}"))
	}
	price("low", 0)
	price("steady", 1)
	price("high", 2)
	class("steady-price", "Price", "steady")
	class("moved-price", "Price", "moved")
	class("steady-class", "Class", "steady")
	isLow := map[string]bool{}
	return func(kind string) {
		isLow[kind] = !isLow[kind]
		cheapest, cost, name := "steady", 2, "high"
		if isLow[kind] {
			cheapest, cost, name = "moved", 0, "low"
		}
		if kind == "Price" {
			price("moved", cost)
		} else {
			class("moved-class", kind, name)
		}
		eventually(t, func(c *attempt) {
			got, err := w.scoredClass(t, "seen", kind)
			require.NoError(c, err)
			require.Equal(c, cheapest+"-"+strings.ToLower(kind), got)
		})
	}
}

// changeScores as many times, at random, and return all states.
func (w *world) changeScores(t *testing.T, changes int, moved func(kind string)) []scoredChange {
	r := rand.New(rand.NewPCG(34, 2)) //nolint:gosec // It has to be reproducible.
	now := scored{map[string]scoredPrice{}, map[string]string{}}
	states := []scoredChange{{scored: now, asked: time.Now(), done: time.Now()}}
	for step := range changes {
		next := scored{maps.Clone(now.prices), maps.Clone(now.classes)}
		price, class := fmt.Sprint("price-", r.IntN(12)), fmt.Sprint("class-", r.IntN(20))
		change, kind := scoredChange{asked: time.Now()}, "Price"
		var err error
		switch r.IntN(6) {
		case 0:
			delete(next.prices, price)
			err = w.deleteScore(t.Context(), kind, price)
		case 1:
			kind = "Class"
			delete(next.classes, class)
			err = w.deleteScore(t.Context(), kind, class)
		case 2, 3:
			kind = "Class"
			next.classes[class] = price
			err = w.writeScore(t.Context(), kind, class, "score", "{price: "+price+"}")
		default:
			p := scoredPrice{
				cost: step + 1, weight: r.IntN(3), room: r.IntN(4), open: r.IntN(4) > 0,
				until: change.asked.Add(time.Duration(1+r.IntN(8)) * time.Second).Truncate(time.Second),
			}
			next.prices[price] = p
			err = w.writeScore(t.Context(), kind, price, "", fmt.Sprintf("{cost: %d, weight: %d, room: %d, open: %t, until: %q}",
				p.cost, p.weight, p.room, p.open, p.until.UTC().Format(time.RFC3339)))
		}
		require.NoError(t, err)
		moved(kind)
		change.scored, change.done, now = next, time.Now(), next
		states = append(states, change)
	}
	return states
}

// writeScore writes a price, or a class with the label for.
func (w *world) writeScore(ctx context.Context, kind, name, use, spec string) error {
	o := &unstructured.Unstructured{}
	text := fmt.Sprintf("{apiVersion: %s/v1, kind: %s, metadata: {name: %s, labels: {for: %q}}, spec: %s}", scoresGroup, kind, name, use, spec)
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		return err
	}
	return w.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership, client.FieldOwner("scores"))
}

func (w *world) deleteScore(ctx context.Context, kind, name string) error {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(scoresGroup + "/v1")
	o.SetKind(kind)
	o.SetName(name)
	return client.IgnoreNotFound(w.Delete(ctx, o))
}
