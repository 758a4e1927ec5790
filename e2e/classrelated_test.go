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
	// scoresGrace is how long a change may take to count: a watch reports it, and an expired score is absent within a second. Another second
	// is for a machine that does much else.
	scoresGrace = 2 * time.Second
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

// scoredChange is a state, and when it began at the earliest and at the latest.
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
		changes, claims = 300, 675
	}
	w.resources(t,
		"Claim claims."+scoresGroup+" Namespaced", "Class classes."+scoresGroup+" Cluster", "Price prices."+scoresGroup+" Cluster")
	w.serves(t, vendor(scoresGroup)+
		claimKind("claims."+scoresGroup,
			"{choice: {strategy: LowestScore, score: classRelated.price.spec.cost}, selector: {whenAbsent: Any}}")+
		classKind("classes."+scoresGroup, fmt.Sprintf(`{claimKinds: [{name: claims.%[1]s}],
  related: [{name: price, resource: prices.%[1]s, nameExpression: class.spec.price, validUntil: object.spec.until}],
  fits: [{name: Open, expression: classRelated.price.spec.open}],
  weight: {expression: "has(classRelated.price) ? classRelated.price.spec.weight : 0"},
  capacity: [{name: claims, total: {expression: classRelated.price.spec.room}}]}`, scoresGroup)))

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
			claim, _, err := w.create(t, claimWith(scoresGroup, fmt.Sprintf("claim-%d-%d", worker, n), "{a: b}"), client.DryRunAll)
			c.ended = time.Now()
			if err != nil {
				t.Error(err)
				return
			}
			_, c.class, _ = strings.Cut(classOf(claim), "/")
			mu.Lock()
			decided = append(decided, c)
			mu.Unlock()
		}
	}
	var workers sync.WaitGroup
	for worker := range 3 {
		workers.Go(func() { decide(worker) })
	}
	states := w.changeScores(t, changes)
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

// changeScores as many times, at random, and return all states.
func (w *world) changeScores(t *testing.T, changes int) []scoredChange {
	r := rand.New(rand.NewPCG(34, 2)) //nolint:gosec // It has to be reproducible.
	now := scored{map[string]scoredPrice{}, map[string]string{}}
	states := []scoredChange{{scored: now, asked: time.Now(), done: time.Now()}}
	for step := range changes {
		next := scored{maps.Clone(now.prices), maps.Clone(now.classes)}
		price, class := fmt.Sprint("price-", r.IntN(12)), fmt.Sprint("class-", r.IntN(20))
		change := scoredChange{asked: time.Now()}
		var err error
		switch r.IntN(6) {
		case 0:
			delete(next.prices, price)
			err = w.deleteScore(t.Context(), "Price", price)
		case 1:
			delete(next.classes, class)
			err = w.deleteScore(t.Context(), "Class", class)
		case 2, 3:
			next.classes[class] = price
			err = w.writeScore(t.Context(), "Class", class, "{price: "+price+"}")
		default:
			p := scoredPrice{
				cost: step + 1, weight: r.IntN(3), room: r.IntN(4), open: r.IntN(4) > 0,
				until: change.asked.Add(time.Duration(1+r.IntN(8)) * time.Second).Truncate(time.Second),
			}
			next.prices[price] = p
			err = w.writeScore(t.Context(), "Price", price, fmt.Sprintf("{cost: %d, weight: %d, room: %d, open: %t, until: %q}",
				p.cost, p.weight, p.room, p.open, p.until.UTC().Format(time.RFC3339)))
		}
		require.NoError(t, err)
		change.scored, change.done, now = next, time.Now(), next
		states = append(states, change)
	}
	return states
}

func (w *world) writeScore(ctx context.Context, kind, name, spec string) error {
	o := &unstructured.Unstructured{}
	text := fmt.Sprintf("{apiVersion: %s/v1, kind: %s, metadata: {name: %s}, spec: %s}", scoresGroup, kind, name, spec)
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
