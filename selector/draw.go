package selector

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
)

func useOf(k *v1beta1.ClaimKind) v1beta1.UseSubject {
	if k.Spec.Classes.Use == nil {
		return ""
	}
	return k.Spec.Classes.Use.Subject
}

// UserOf is whose right to use a class counts for a claim, nil if none does: the namespace's where the requester is no longer known.
func (k *ClaimKind) UserOf(c claim.Claim) *access.Subject {
	switch {
	case k.Use == "":
		return nil
	case k.Use == v1beta1.UseByRequester && c.Requester != nil:
		return c.Requester
	}
	return access.OfNamespace(c.Namespace)
}

// DrawsAfresh reports whether each request for a claim, on which a decision was made, has its own seed.
func (k *ClaimKind) DrawsAfresh(c claim.Claim) bool {
	return k.freshSeeds || c.Group == "" && c.Name == ""
}

// Seed of the draw for a claim: a hash of its group, or else of its identity, or fresh if it has neither or the kind asks for that. Groups
// of two namespaces draw apart: else all that are called "db" would have one class, and the shares would not follow the weights.
func (k *ClaimKind) Seed(c claim.Claim, fresh uint64) uint64 {
	if k.DrawsAfresh(c) {
		return fresh
	}
	return inventory.Hash(k.Name, c.Namespace, cmp.Or(c.Group, c.Name))
}

// Strategy chooses one of several candidates.
type Strategy struct {
	Name v1beta1.Strategy
	// Weighted strategies offer no class of weight 0.
	Weighted bool
	// Counted strategies need to know how many claims each class has: see ClaimKind.Tally.
	Counted bool
	// Webhook says why the API server cannot give the default class to claims of this strategy; empty, it can.
	Webhook string
	// Depends names what the draw depends on besides the claim and its candidates, so that it cannot be repeated; empty if nothing.
	Depends string
	// place of a candidate, given a uniform u in (0,1). The highest rank wins, and within it the smallest key.
	place func(u float64, weight int64) (rank int64, key float64)
	// newMemory makes the memory of a strategy that depends on its earlier decisions, which then ranks the candidates. Nil is for others.
	newMemory func(*ClaimKind) memory
}

// memory is what a strategy remembers of its decisions on the claims of one kind. Many goroutines use it at once.
type memory interface {
	// rank of a class for a claim of this namespace. The draw is among the classes with the highest.
	rank(namespace string, c *inventory.Class) int64
	// commit remembers that a claim of this namespace gets a class. It returns false if the class no longer has this rank: the caller then
	// chooses again.
	commit(namespace string, c *inventory.Class, rank int64) bool
}

// byWeight gives shares that are proportional to the weights.
func byWeight(u float64, weight int64) (rank int64, key float64) {
	return 0, -math.Log(u) / float64(weight)
}

// strategies has all of them. A new strategy is a new row.
var strategies = map[v1beta1.Strategy]Strategy{
	v1beta1.Random: {place: func(u float64, _ int64) (int64, float64) {
		return 0, -math.Log(u)
	}},
	v1beta1.WeightedRandom: {Weighted: true, place: byWeight},
	v1beta1.HighestWeight: {Weighted: true, place: func(u float64, weight int64) (int64, float64) {
		return weight, -math.Log(u)
	}},
	v1beta1.LeastClaims: {
		Weighted: true, Counted: true, Depends: "how many claims each class has",
		place:     byWeight,
		newMemory: func(k *ClaimKind) memory { return counts{k} },
	},
	// Those with a score are ranked by it: see facts.rank.
	v1beta1.LowestScore:  {Weighted: true, place: byWeight},
	v1beta1.HighestScore: {Weighted: true, place: byWeight},
	v1beta1.ExternalStrategy: {
		Weighted: true, Depends: "what the chooser answers", Webhook: "only the chooser knows which class a claim gets", place: byWeight,
	},
	v1beta1.RoundRobin: {
		Depends:   "which classes the replica that is asked gave last",
		Webhook:   "classbind has to know which class it gave last",
		place:     func(u float64, _ int64) (int64, float64) { return 0, -math.Log(u) },
		newMemory: func(*ClaimKind) memory { return &turns{} },
	},
}

// each visits the classes that a claim asks for and is offered, before the tests, with their seat: see candidate. A visit reports whether
// the tests leave the class.
func (v *View) each(claim Subject, visit func(c *inventory.Class, seat int8) (left bool)) {
	asked := claim.asks()
	switch {
	case asked == nil && claim.only != nil:
		visit(claim.only, 0)
		return
	case asked == nil:
		v.eachDefault(claim, visit)
		return
	}
	var values inventory.Values
	if claim.facts != nil {
		values = claim.facts.values
	}
	v.Each(claim.Namespace, asked, values, func(c *inventory.Class) { visit(c, 0) })
}

// eachDefault visits the default classes of the claim's own namespace and partition. If none of them is left after dropping, it also visits
// those of the next seat: for partitions without a default, then for all namespaces, in both ways. Where a claim may not use all classes,
// it visits those of all seats, because a default that the claim may not use does not count for it.
func (v *View) eachDefault(claim Subject, visit func(c *inventory.Class, seat int8) (left bool)) {
	namespace, partition := "", ""
	if v.Kind.Demand.Reach.SameAsClaim() {
		namespace = claim.Namespace
	}
	if claim.facts != nil {
		partition = claim.facts.partition
	}
	left, seat := false, int8(0)
	for i, of := range [...][2]string{{namespace, partition}, {namespace, ""}, {"", partition}, {"", ""}} {
		if left || i%2 == 1 && partition == "" || i > 1 && namespace == "" { // The last two: it is one of those before.
			continue
		}
		v.EachDefaultOf(of[0], of[1], func(c *inventory.Class) {
			if visit(c, seat) && v.Kind.Use == "" {
				left = true
			}
		})
		if v.Kind.Use != "" {
			seat++
		}
	}
}

// candidate of a draw.
type candidate struct {
	class *inventory.Class
	// seat of a default class, where a claim may not use all: the first is preferred. No role allows the claim to use one that is unlikely.
	seat     int8
	unlikely bool
	// judged reports whether no expression drops the class, and admitted whether no gate does. What a claim may not use is hidden.
	judged, admitted, hidden bool

	rank int64
	key  float64
}

// before reports whether the draw prefers a to b.
func (a *candidate) before(b *candidate) bool {
	if a.seat != b.seat {
		return a.seat < b.seat
	}
	if a.unlikely != b.unlikely {
		return b.unlikely
	}
	return a.rank > b.rank ||
		a.rank == b.rank && (a.key < b.key || a.key == b.key && inventory.Compare(a.class, b.class) < 0)
}

// order gives the candidates of a claim in the order of its kind's strategy. It is lazy: nearly every claim gets the first, so only that
// one is kept at first. To go down the order is to draw with the same odds among those that are left.
type order struct {
	view  *View
	claim Subject
	seed  uint64
	// granted is what roles allow the claim to use.
	granted *access.Granted
	// gated reports whether a gate may refuse the first, hides whether the claim may not use all classes, keeps whether a gate or a chooser
	// may need those after the first, and remembers whether classes may be judged again.
	gated, hides, keeps, remembers bool
	// most is how many candidates are enough, whichever the draw prefers; 0, all matter.
	most int
	out  *outside
	// rest are the candidates after the first, once the second was asked for, or all where gates and expressions drop classes.
	rest *candidateHeap
	// later reports whether a second candidate was asked for.
	later bool
}

// first candidate, without a class if there is none. The decision learns how many there are, and what was dropped.
//
// What the claim may not be allowed to use is hidden, and judged only when its turn in the order comes: what others wrote there must
// neither cost the claim anything nor change what its author reads.
func (o *order) first(ctx context.Context, decision *Decision) (best candidate) {
	var unjudged []candidate
	kind, facts := o.view.Kind, o.claim.facts
	judges, isDefault := kind.judges(), o.claim.asks() == nil
	if judges && (o.keeps || o.hides) {
		o.rest = &candidateHeap{}
	}
	o.view.each(o.claim, func(c *inventory.Class, seat int8) (left bool) {
		if o.most > 0 && decision.Candidates >= o.most {
			return false
		}
		if by, err := firstDrop(ctx, kind.cheap(), o.claim, c); by != nil {
			decision.drop(by, c, err)
			return false
		}
		if !judges {
			o.improve(&best, decision, o.place(c, seat))
			return true
		}
		if o.hides {
			if next := o.place(c, seat); o.granted == nil || next.unlikely {
				o.hide(next)
				return false
			}
		}
		if isDefault || facts.budget.Left >= v1beta1.MaxExpressionCost/2 {
			return o.judge(ctx, &best, decision, c, seat)
		}
		unjudged = append(unjudged, o.place(c, seat)) // The rest of the budget is for those that matter.
		return false
	})
	if len(unjudged) > 0 {
		o.judgeRest(ctx, &best, decision, unjudged)
	}
	if o.rest != nil {
		heap.Init(o.rest)
		return o.next(ctx, decision, nil)
	}
	return best
}

// judge a class, and make it the best, if it is a candidate and the draw prefers it.
func (o *order) judge(ctx context.Context, best *candidate, decision *Decision, c *inventory.Class, seat int8) (left bool) {
	kind := o.view.Kind
	o.claim.facts.remembers = o.remembers
	switch by, err := kind.judgeInTurn(ctx, o.claim, c, o.out); {
	case errors.Is(err, expression.ErrBudget) && o.claim.asks() == nil: // The next seat is not for it.
		decision.leave(c, o.view.isLong(c))
		return false
	case by != nil:
		decision.drop(by, c, err)
		return false
	}
	next := o.place(c, seat)
	next.judged = true
	o.improve(best, decision, next)
	if o.rest != nil {
		*o.rest = append(*o.rest, next)
	}
	return true
}

// improve makes a candidate the best, if the draw prefers it.
func (o *order) improve(best *candidate, decision *Decision, next candidate) {
	decision.Candidates++
	if best.class == nil || next.before(best) {
		*best = next
	}
}

// hide a class until its turn comes. With a score, only its expression says when: then it comes first.
func (o *order) hide(c candidate) {
	if c.hidden = true; o.view.Kind.Rules.Score != nil {
		c.rank = math.MaxInt64
	}
	*o.rest = append(*o.rest, c)
}

// next candidate after one that was refused, without a class if there is none. It is not judged yet if it is hidden and what may be spent
// on these is: then it is to be admitted, and comes again. Those that were not judged before are judged in the order of the draw, within
// half of the budget at least. The decision learns how many are not.
func (o *order) next(ctx context.Context, decision *Decision, refused *inventory.Class) candidate {
	kind := o.view.Kind
	if o.rest == nil {
		rest := make(candidateHeap, 0, decision.Candidates)
		o.view.each(o.claim, func(c *inventory.Class, seat int8) bool {
			by, _ := firstDrop(ctx, kind.cheap(), o.claim, c)
			if by == nil && c != refused {
				rest = append(rest, o.place(c, seat))
			}
			return by == nil
		})
		heap.Init(&rest)
		o.rest = &rest
	}
	for o.rest.Len() > 0 {
		next := heap.Pop(o.rest).(candidate)
		if next.judged || !kind.judges() {
			return next
		}
		by, err := o.judgeLater(ctx, &next, decision)
		switch isSpent := errors.Is(err, expression.ErrBudget); {
		case isSpent && next.hidden:
			return next
		case isSpent:
			decision.Unjudged++
		case by != nil:
			decision.drop(by, next.class, err)
		case kind.Rules.Score != nil:
			next.rank = o.claim.facts.last.rank
			heap.Push(o.rest, next)
		default:
			return next
		}
	}
	return candidate{}
}

// judgeLater judges a candidate when its turn in the order comes. What is hidden costs the claim nothing, and waits for no turn.
func (o *order) judgeLater(ctx context.Context, c *candidate, decision *Decision) (by *Test, err error) {
	kind, facts := o.view.Kind, o.claim.facts
	facts.remembers = true
	if c.hidden {
		facts.budget, facts.spare = facts.spare, facts.budget
		by, err = kind.judge(ctx, o.claim, c.class)
		facts.budget, facts.spare = facts.spare, facts.budget
	} else {
		if !o.later {
			o.later, facts.budget.Left = true, max(facts.budget.Left, v1beta1.MaxExpressionCost/2)
		}
		by, err = kind.judgeInTurn(ctx, o.claim, c.class, o.out)
	}
	if c.judged = by == nil; c.judged {
		decision.Candidates++
	}
	return by, err
}

// admit a candidate that was not judged. It comes again.
func (o *order) admit(c candidate) {
	c.admitted, c.hidden = true, false
	heap.Push(o.rest, c)
}

// skipUnlikely passes over what is left of a seat and no role allows. It comes last there. Nothing of it is judged.
func (o *order) skipUnlikely(seat int8) {
	for o.rest != nil && o.rest.Len() > 0 && (*o.rest)[0].seat == seat && (*o.rest)[0].unlikely {
		heap.Pop(o.rest)
	}
}

func (o *order) place(c *inventory.Class, seat int8) candidate {
	kind := o.view.Kind
	rank, key := kind.Strategy.place(uniform(o.seed, c.DrawHash), c.Weight)
	switch {
	case kind.memory != nil:
		rank = kind.memory.rank(o.claim.Namespace, c)
	case kind.Rules.Score != nil && o.claim.facts.of == c: // A class that is judged later has no rank yet.
		rank = o.claim.facts.last.rank
	}
	unlikely := o.granted != nil && !o.view.likely(o.granted, o.claim.Namespace, c)
	return candidate{class: c, seat: seat, unlikely: unlikely, rank: rank, key: key}
}

// candidateHeap is a heap.Interface, the best first.
type candidateHeap []candidate

func (h candidateHeap) Len() int           { return len(h) }
func (h candidateHeap) Less(i, j int) bool { return h[i].before(&h[j]) }
func (h candidateHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

func (h *candidateHeap) Push(c any) { *h = append(*h, c.(candidate)) }

func (h *candidateHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	*h = (*h)[:last]
	return c
}

// uniform returns a number in (0,1), without both ends, that depends on every bit of both arguments. It is the finalizer of SplitMix64
// (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"), once for each.
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
