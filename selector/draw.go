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
	// Depends names what the draw depends on besides the claim and its candidates, which
	// is why nobody can repeat it elsewhere. It is empty if there is nothing.
	Depends string
	// place of a candidate, given a uniform u in (0,1). The highest rank wins, and
	// within it the smallest key.
	place func(u float64, weight int64) (rank int64, key float64)
	// remember makes the memory of a strategy that depends on its earlier decisions. The
	// memory then ranks the candidates. It is nil for other strategies.
	remember func(*ClaimKind) memory
}

// memory is what a strategy remembers of its decisions on the claims of one kind. Many
// goroutines use it at once.
type memory interface {
	// rank of a class. The draw is among the classes with the highest.
	rank(*Class) int64
	// commit remembers that a claim gets a class, at this time. It returns false if the
	// class no longer has this rank: the caller then chooses again.
	commit(claim Claim, c *Class, rank int64, now time.Time) bool
}

// CountsClaims says whether a strategy needs to know how many claims each class has.
func CountsClaims(s v1alpha1.Strategy) bool { return strategies[s].Counted }

// strategies has all of them. A new strategy is a new row.
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

// draw holds the best candidate so far. The order of the offers does not matter.
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

// uniform returns a number in (0,1), without both ends, that depends on every bit of
// both arguments. It is the finalizer of SplitMix64 (Steele, Lea and Flood 2014,
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
