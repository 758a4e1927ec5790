package selector

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
)

// Room is how much is taken of each quantity of a class, in the order of its kind.
type Room [v1beta1.MaxQuantities]Taken

// Taken of one quantity: used by claims that are stored, and reserved for those that have the class and are not seen yet.
type Taken struct {
	// Used and Reserved are of the class, and the others of the claims of one namespace.
	Used, Reserved                   int64
	NamespaceUsed, NamespaceReserved int64
}

// Fits reports whether there is room for a claim that uses so much.
func (t Taken) Fits(in *inventory.Capacity, usage int64) bool {
	return within(in.Total, t.All(), usage) && within(in.PerNamespace, plus(t.NamespaceUsed, t.NamespaceReserved), usage)
}

// All that is taken of the class, used or reserved.
func (t Taken) All() int64 { return plus(t.Used, t.Reserved) }

// Share of a class that is in use.
func (t Taken) Share(of *inventory.Capacity) float64 {
	if of.Total == inventory.Unlimited {
		return 0
	}
	return float64(t.All()) / float64(max(of.Total, 1))
}

func within(limit, taken, usage int64) bool {
	return limit == inventory.Unlimited || plus(taken, usage) <= limit
}

// plus is the sum of amounts, or the greatest if that is too large for an int64. A negative amount was too large, too.
func plus(a, b int64) int64 {
	if a < 0 || b < 0 || a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// amount is a sum of what claims use, to which each claim adds and from which it takes the same again. It does not wrap around unseen:
// chunks are its high bits, without what the claims use of the last chunk.
type amount struct{ units, chunks atomic.Int64 }

const (
	chunkBits = 22
	// mostChunks leave room for the last chunks of two thousand million claims.
	mostChunks = math.MaxInt64>>chunkBits - 1<<31
)

func (a *amount) add(claims, usage int64) {
	a.units.Add(claims * usage)
	a.chunks.Add(claims * (usage >> chunkBits))
}

func (a *amount) load() int64 {
	if units := a.units.Load(); units >= 0 && a.chunks.Load() < mostChunks {
		return units
	}
	return math.MaxInt64
}

// uses is how much of a quantity a claim uses: as much as its ClaimKind says, and else 1 of the quantity claims alone.
func (k *ClaimKind) uses(usage *claim.Usage, quantity v1beta1.QuantityName) int64 {
	switch i := k.Rules.UsageIndex(quantity); {
	case i >= 0:
		return usage[i]
	case quantity == v1beta1.ClaimsQuantity:
		return 1
	}
	return 0
}

// hasRoom reports whether a claim fits into a class.
func (k *ClaimKind) hasRoom(c *claim.Claim, class *inventory.Class) bool {
	if len(class.Capacity) == 0 {
		return true
	}
	room := k.room(c.Namespace, class)
	for i, quantity := range class.Kind.Quantities {
		if !room[i].Fits(&class.Capacity[i], k.uses(&c.Usage, quantity)) {
			return false
		}
	}
	return true
}

func (k *ClaimKind) room(namespace string, class *inventory.Class) Room {
	if k.Room == nil {
		return Room{}
	}
	return k.Room(namespace, class)
}

// fullText is the text of a Drop that names each quantity for which a class has no room.
func (k *ClaimKind) fullText(c *claim.Claim, class *inventory.Class) string {
	room, full := k.room(c.Namespace, class), []string(nil)
	for i, quantity := range class.Kind.Quantities {
		of, usage := &class.Capacity[i], k.uses(&c.Usage, quantity)
		switch {
		case room[i].Fits(of, usage):
		case of.Err != nil:
			full = append(full, fmt.Sprintf("its capacity of %s is malformed: %v", quantity, of.Err))
		default:
			full = append(full, room[i].text(of, usage, quantity, c.Namespace))
		}
	}
	return "full: " + strings.Join(full, "; ")
}

// text says why a claim that uses so much does not fit.
func (t Taken) text(of *inventory.Capacity, usage int64, quantity v1beta1.QuantityName, namespace string) string {
	in, limit, taken, reserved := "", of.Total, t.All(), t.Reserved
	if within(limit, taken, usage) {
		in, limit = fmt.Sprintf(" for namespace %q", namespace), of.PerNamespace
		taken, reserved = plus(t.NamespaceUsed, t.NamespaceReserved), t.NamespaceReserved
	}
	text := fmt.Sprintf("%d of %d %s%s", taken, limit, quantity, in)
	if reserved > 0 {
		text += fmt.Sprintf(", %d of them reserved", reserved)
	}
	if usage != 1 {
		text += fmt.Sprintf(", and this claim uses %d", usage)
	}
	return text
}

// Room of a class by the claims that are counted, of all claim kinds that it serves. Each replica
// knows its own claims at once, and those of the others when they are stored. So a class may hold more than its capacity by
// what other replicas give meanwhile, and by the claims that name it themselves.
func (s Snapshot) Room(namespace string, c *inventory.Class) (r Room) {
	s.eachCounted(c.Kind, func(k *ClaimKind) {
		class := k.Demand.CountedAs(c)
		all, own := k.Tally.find(class), k.Tally.find(namespaceKey(class, namespace))
		for i, quantity := range c.Kind.Quantities {
			at := k.Rules.UsageIndex(quantity)
			if at < 0 && quantity != v1beta1.ClaimsQuantity {
				continue
			}
			used, reserved := all.taken(at)
			r[i].Used, r[i].Reserved = plus(r[i].Used, used), plus(r[i].Reserved, reserved)
			used, reserved = own.taken(at)
			r[i].NamespaceUsed, r[i].NamespaceReserved = plus(r[i].NamespaceUsed, used), plus(r[i].NamespaceReserved, reserved)
		}
	})
	return r
}

// UsageOf a claim that is stored, by the objects that the view has, or that d reads if it is Patient. An expression that fails counts
// as 1. One that looks at a list which is too long is Unknown: else who lengthens a list would change what his claims use. The error is
// that of a read.
func (d *Decider) UsageOf(ctx context.Context, v *View, c claim.Claim) (claim.Usage, error) {
	f := facts{input: expression.Input{Claim: c.Object}, budget: expression.Budget{Left: v1beta1.MaxExpressionCost}}
	in, err := claim.Intake{Claim: c}, error(nil)
	out := &outside{decider: d, namespace: c.Namespace}
	r := resolver{out: out, view: v, in: &in, mode: Mode{Stored: true}, facts: &f, counts: true}
	if v.Kind.Rules.UsageReadsOthers {
		err = r.resolveRelated(ctx)
	}
	r.resolveUsage()
	return in.Usage, err
}

// Freed is another number once there may be more room in the classes of a view.
func (s Snapshot) Freed(v *View) (n uint64) {
	for _, classes := range v.All {
		if classes.Kind.HasCapacity() {
			s.eachCounted(classes.Kind, func(k *ClaimKind) { n += k.Tally.freed.Load() })
		}
	}
	return n
}

// eachCounted visits the claim kinds whose claims count for the classes of a kind.
func (s Snapshot) eachCounted(of *inventory.ClassKind, visit func(*ClaimKind)) {
	for _, name := range of.ClaimKinds {
		v, isThis := s[name], func(k *inventory.ClassKind) bool { return k.Name == of.Name }
		if v != nil && v.Kind.Limited && v.Kind.Tally != nil && v.Conflict == nil && !slices.ContainsFunc(v.LeftOut, isThis) {
			visit(v.Kind)
		}
	}
}
