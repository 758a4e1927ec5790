package selector

import (
	"math"
	"time"

	"github.com/classbind/classbind/api/v1alpha1"
)

// Strategy chooses one of several candidates.
type Strategy struct {
	Name v1alpha1.Strategy
	// Weighted strategies offer no class of weight 0.
	Weighted bool
	// Counted strategies need to know how many claims each class has: see ClaimKind.Tally.
	Counted bool
	// Depends says on what the draw does beside the claim and its candidates, and
	// so cannot be made again elsewhere; empty, on nothing.
	Depends string
	// place of a candidate with the uniform u in (0,1): the highest rank wins,
	// and within it the smallest key.
	place func(u float64, weight int64) (rank int64, key float64)
	// remember makes the memory of a strategy that depends on its earlier decisions, nil
	// for others. It is what ranks the candidates then.
	remember func(*ClaimKind) memory
}

// memory of a strategy's decisions on the claims of one kind. Claims are decided on at
// the same time.
type memory interface {
	// rank of a class. One of those with the highest is drawn.
	rank(*Class) int64
	// commit a decision that is to take effect: a claim gets a class that has this rank, at this
	// time. It is false where the rank has changed meanwhile, so that another decision has to be made.
	commit(claim Claim, c *Class, rank int64, now time.Time) bool
}

// CountsClaims says whether a strategy needs to know how many claims each class has.
func CountsClaims(s v1alpha1.Strategy) bool { return strategies[s].Counted }

// strategies is all of them; a new one is a new row.
var strategies = map[v1alpha1.Strategy]Strategy{
	v1alpha1.Random: {place: func(u float64, _ int64) (int64, float64) {
		return 0, -math.Log(u)
	}},
	v1alpha1.WeightedRandom: {Weighted: true, place: func(u float64, weight int64) (int64, float64) {
		return 0, -math.Log(u) / float64(weight)
	}},
	v1alpha1.HighestWeight: {Weighted: true, place: func(u float64, weight int64) (int64, float64) {
		return weight, -math.Log(u)
	}},
	v1alpha1.LeastClaims: {
		Weighted: true, Counted: true, Depends: "how many claims each class has",
		place:    func(u float64, weight int64) (int64, float64) { return 0, -math.Log(u) / float64(weight) },
		remember: func(k *ClaimKind) memory { return counts{k} },
	},
	v1alpha1.RoundRobin: {
		Depends:  "which classes the replica that is asked gave last",
		place:    func(u float64, _ int64) (int64, float64) { return 0, -math.Log(u) },
		remember: func(*ClaimKind) memory { return &turns{} },
	},
}

// draw holds the best candidate so far; the order in which they are offered
// does not matter.
type draw struct {
	strategy Strategy
	memory   memory
	seed     uint64

	winner *Class
	rank   int64
	key    float64
}

func (d *draw) offer(c *Class) {
	rank, key := d.strategy.place(uniform(d.seed, c.sum), c.Weight)
	if d.memory != nil {
		rank = d.memory.rank(c)
	}
	if d.winner == nil || rank > d.rank ||
		rank == d.rank && (key < d.key || key == d.key && compare(c, d.winner) < 0) {
		d.winner, d.rank, d.key = c, rank, key
	}
}

// uniform is a number in (0,1), both ends excluded, that depends on every bit
// of both arguments: the finalizer of SplitMix64 (Steele, Lea and Flood 2014,
// "Fast splittable pseudorandom number generators"), once for each.
func uniform(seed, hash uint64) float64 {
	const bits = 52 // One more, and adding a half would round the largest up to 1.
	return (float64(mix(mix(seed)^hash)>>(64-bits)) + 0.5) / (1 << bits)
}

func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
