package selector

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// Room is how much of a class is taken: used by claims that are stored, and reserved for those that have the class and are not seen yet.
type Room struct {
	// Used and Reserved are of the class, and the others of the claims of one namespace.
	Used, Reserved                   int64
	NamespaceUsed, NamespaceReserved int64
}

// Fits reports whether there is room for a claim that uses so much.
func (r Room) Fits(in *inventory.Capacity, usage int64) bool {
	return within(in.Total, r.Taken(), usage) && within(in.PerNamespace, plus(r.NamespaceUsed, r.NamespaceReserved), usage)
}

// Taken of the class, used or reserved.
func (r Room) Taken() int64 { return plus(r.Used, r.Reserved) }

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

// hasRoom reports whether a claim fits into a class.
func (k *ClaimKind) hasRoom(c claim.Claim, class *inventory.Class) bool {
	return class.Capacity == nil || k.room(c.Namespace, class).Fits(class.Capacity, c.Usage)
}

func (k *ClaimKind) room(namespace string, class *inventory.Class) Room {
	if k.Room == nil {
		return Room{}
	}
	return k.Room(namespace, class)
}

// fullText is the text of a Drop that says why a class has no room for a claim.
func (k *ClaimKind) fullText(c claim.Claim, class *inventory.Class) string {
	if class.Capacity.Err != nil {
		return "full: its capacity is malformed: " + class.Capacity.Err.Error()
	}
	r := k.room(c.Namespace, class)
	in, limit, taken, reserved := "", class.Capacity.Total, r.Taken(), r.Reserved
	if within(limit, taken, c.Usage) {
		in, limit = fmt.Sprintf(" for namespace %q", c.Namespace), class.Capacity.PerNamespace
		taken, reserved = plus(r.NamespaceUsed, r.NamespaceReserved), r.NamespaceReserved
	}
	text := fmt.Sprintf("full%s: %d of %d", in, taken, limit)
	if reserved > 0 {
		text += fmt.Sprintf(", %d of them reserved", reserved)
	}
	if c.Usage != 1 {
		text += fmt.Sprintf(", and this claim uses %d", c.Usage)
	}
	return text
}

// Room of a class by the claims that are counted, of all claim kinds that it serves. Each replica
// knows its own claims at once, and those of the others when they are stored. So a class may hold more than its capacity by
// what other replicas give meanwhile, and by the claims that name it themselves.
func (s Snapshot) Room(namespace string, c *inventory.Class) (r Room) {
	s.eachCounted(c.Kind, func(k *ClaimKind) {
		class := k.Demand.CountedAs(c)
		if n := k.Tally.find(class); n != nil {
			r.Used = plus(r.Used, n.used.load())
			r.Reserved = plus(r.Reserved, n.reserved.load())
		}
		if n := k.Tally.find(k.ShareOf(namespace, 0).key(class)); n != nil {
			r.NamespaceUsed = plus(r.NamespaceUsed, n.used.load())
			r.NamespaceReserved = plus(r.NamespaceReserved, n.reserved.load())
		}
	})
	return r
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
