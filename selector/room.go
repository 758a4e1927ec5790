package selector

import (
	"fmt"
	"slices"

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
	return within(in.Total, r.Used, r.Reserved, usage) &&
		within(in.PerNamespace, r.NamespaceUsed, r.NamespaceReserved, usage)
}

// within is false for a sum that was too large for an int64, which is negative.
func within(limit, used, reserved, usage int64) bool {
	return limit == inventory.Unlimited || used >= 0 && reserved >= 0 && used <= limit-reserved-usage
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
	in, limit, used, reserved := "", class.Capacity.Total, r.Used, r.Reserved
	if within(limit, used, reserved, c.Usage) {
		in, limit = fmt.Sprintf(" for namespace %q", c.Namespace), class.Capacity.PerNamespace
		used, reserved = r.NamespaceUsed, r.NamespaceReserved
	}
	text := fmt.Sprintf("full%s: %d of %d", in, used+reserved, limit)
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
		class := k.CountedAs(c)
		if n := k.Tally.find(class); n != nil {
			r.Used += n.used.Load()
			r.Reserved += n.reserved.Load()
		}
		if n := k.Tally.find(k.ShareOf(namespace, 0).key(class)); n != nil {
			r.NamespaceUsed += n.used.Load()
			r.NamespaceReserved += n.reserved.Load()
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
