package selector

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// InFlightWindow is how long a claim counts for its class without being seen stored. kube-apiserver takes less for any write (34 s).
const InFlightWindow = 40 * time.Second

// Tally counts the claims of one kind by class: those seen bound, and those in flight, which have a class but are not seen stored yet. To
// choose only loads numbers. To commit a choice adds one, and leaves a note with the claim.
//
// Each of several replicas knows its own claims at once, and those of the others when they are stored, some milliseconds later. So each
// spreads its own claims evenly, and the sum is even. If one class has fewer claims than all others, the replicas overshoot by as many
// claims as arrive in that delay. Replicas that see equal counts do not all take the same class: the weighted draw decides among equals,
// seeded by the claim. A claim without a name cannot be distinguished from another replica's with the same generateName and class, so one
// of them may be forgotten some milliseconds early.
type Tally struct {
	counts sync.Map // *Count by Share.key, as a uint64
	// notes is a stack of the claims that were committed since sortIn last ran.
	notes atomic.Pointer[inFlight]
	// freed counts how often claims gave back what they use of a capacity.
	freed atomic.Uint64

	mu      sync.Mutex             // held while counts come and go, guards pending
	pending map[uint64][]*inFlight // by claim, those that look the same, the oldest first
}

// Count of the claims of one class. Where classes have a capacity, there is one of each namespace, too, and a claim counts for both.
type Count struct {
	bound, inFlight atomic.Int64
	// uses are how much these use of the quantities that the claim kind names.
	uses []quantityUse
	key  uint64
	// of is the count of the whole class, nil if this is it.
	of *Count
}

// quantityUse is how much claims use of a quantity.
type quantityUse struct{ used, reserved amount }

// taken of the quantity at an index of ForClaims.Usage, or of the quantity claims.
func (c *Count) taken(at int) (used, reserved int64) {
	switch {
	case c == nil:
		return 0, 0
	case at < 0:
		return c.bound.Load(), c.inFlight.Load()
	}
	return c.uses[at].used.load(), c.uses[at].reserved.load()
}

// add claims that use so much of the capacity, if there is one, or take them off.
func (c *Count) add(bound, inFlight int64, usage *claim.Usage) {
	c.bound.Add(bound)
	c.inFlight.Add(inFlight)
	if c.of == nil {
		return
	}
	c.of.add(bound, inFlight, usage)
	for i := range c.uses {
		for _, of := range [...]*quantityUse{&c.uses[i], &c.of.uses[i]} {
			of.used.add(bound, usage[i])
			of.reserved.add(inFlight, usage[i])
		}
	}
}

// Unbind takes back one Bind.
func (t *Tally) Unbind(c *Count, usage claim.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.take(c, 1, 0, &usage)
}

// Change how much a claim uses that Bind counted.
func (t *Tally) Change(c *Count, was, now claim.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.add(1, 0, &now)
	if c.add(-1, 0, &was); was.Frees(now) {
		t.Free()
	}
}

// take claims off a count, which is forgotten with its last: authors may name any number of classes. That of the class stays while a
// namespace has one: a claim that is reserved meanwhile may not count for the class yet. One whose count was just forgotten is not seen in
// flight. The caller holds mu.
func (t *Tally) take(c *Count, bound, inFlight int64, usage *claim.Usage) {
	c.add(-bound, -inFlight, usage)
	for ; c != nil && c.bound.Load() == 0 && c.inFlight.Load() == 0; c = c.of {
		t.counts.CompareAndDelete(c.key, c)
	}
}

// Share of a claim in its class: it uses so much of the capacity, as one of its namespace, where classes have one.
type Share struct {
	isLimited bool
	// quantities are as many as the claim kind names, limited or not: it may become limited, and its counts stay.
	quantities int
	namespace  string
	usage      claim.Usage
}

// ShareOf a claim of a namespace that uses so much.
func (k *ClaimKind) ShareOf(namespace string, usage claim.Usage) Share {
	if !k.Limited {
		return Share{quantities: len(k.Rules.Usage)}
	}
	return Share{true, len(k.Rules.Usage), namespace, usage}
}

// key of the count for a class.
func (s Share) key(class uint64) uint64 {
	if !s.isLimited {
		return class
	}
	return namespaceKey(class, s.namespace)
}

// namespaceKey is that of the count for the claims of one namespace.
func namespaceKey(class uint64, namespace string) uint64 {
	return maphash.Comparable(claim.Seed, struct {
		class     uint64
		namespace string
	}{class, namespace})
}

type inFlight struct {
	claim uint64
	named bool
	count *Count
	usage claim.Usage
	since time.Time
	next  *inFlight
}

// claims of a class, seen bound or in flight.
func (t *Tally) claims(class uint64) int64 {
	if c := t.find(class); c != nil {
		return c.bound.Load() + c.inFlight.Load()
	}
	return 0
}

// BoundClaims is how many claims of the kind were seen bound to a class.
func (k *ClaimKind) BoundClaims(c *inventory.Class) int64 {
	if n := k.Tally.find(k.Demand.CountedAs(c)); n != nil {
		return n.bound.Load()
	}
	return 0
}

// find a count, nil if there is none. A nil Tally has none.
func (t *Tally) find(key uint64) *Count {
	if t == nil {
		return nil
	}
	c, _ := t.counts.Load(key)
	count, _ := c.(*Count)
	return count
}

// Bind counts a claim as seen bound to a class that BoundTo gave, until Unbind; nil without one.
func (t *Tally) Bind(class uint64, s Share) *Count {
	if class == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add(class, s, 1, 0)
}

// Free records that claims use less of a capacity than before.
func (t *Tally) Free() { t.freed.Add(1) }

// add claims to the count of a class. The caller holds mu: no other goroutine forgets a count before a claim is added to it.
func (t *Tally) add(class uint64, s Share, bound, inFlight int64) *Count {
	var of *Count
	if s.isLimited {
		of = t.make(class, nil, s.quantities)
	}
	c := t.make(s.key(class), of, s.quantities)
	c.add(bound, inFlight, &s.usage)
	return c
}

// make a count, unless there is one.
func (t *Tally) make(key uint64, of *Count, quantities int) *Count {
	c, _ := t.counts.LoadOrStore(key, &Count{key: key, of: of, uses: make([]quantityUse, quantities)})
	return c.(*Count) // There is nothing else.
}

// counts rank the classes of a kind by the fewest claims, or, where classes have a capacity, by the smallest share of it that is used. With
// several quantities, the share is that of the fullest one.
type counts struct{ kind *ClaimKind }

func (n counts) rank(namespace string, c *inventory.Class) int64 {
	if n.kind.Limited {
		if len(c.Capacity) == 0 {
			return 0
		}
		room, share := n.kind.room(namespace, c), 0.0
		for i := range c.Capacity {
			share = max(share, room[i].Share(&c.Capacity[i]))
		}
		return -rankOf(share)
	}
	return -n.kind.Tally.claims(n.kind.Demand.CountedAs(c))
}

// commit has nothing to remember: see Decider.commit.
func (counts) commit(string, *inventory.Class, int64) bool { return true }

// reserve counts a claim as in flight. A claim that has no name yet is known by its generateName.
func (t *Tally) reserve(claim claim.Claim, class uint64, s Share, now time.Time) {
	count := t.find(s.key(class))
	if count == nil { // A claim takes no lock but for a class that is new here.
		t.mu.Lock()
		count = t.add(class, s, 0, 1)
		t.mu.Unlock()
	} else {
		count.add(0, 1, &s.usage)
	}
	note := &inFlight{
		claim: claimHash(claim.Namespace, claim.Name, claim.GenerateName, class), named: claim.Name != "",
		count: count, usage: s.usage, since: now,
	}
	for {
		note.next = t.notes.Load()
		if t.notes.CompareAndSwap(note.next, note) {
			return
		}
	}
}

// claimHash is the same for claims that look the same: those without a name that were given the same class, for one.
func claimHash(namespace, name, generateName string, class uint64) uint64 {
	if name != "" {
		return maphash.Comparable(claim.Seed, [...]string{namespace, name})
	}
	return maphash.Comparable(claim.Seed, struct {
		namespace, generateName string
		class                   uint64
	}{namespace, generateName, class})
}

// Seen records that a claim is stored and bound, so that it is no longer in flight.
func (t *Tally) Seen(namespace, name, generateName string, classes [2]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sortIn()
	named := claimHash(namespace, name, "", 0)
	if len(t.pending[named]) > 0 || generateName == "" {
		t.forget(named, anyNote)
		return
	}
	for _, class := range classes {
		claim := claimHash(namespace, "", generateName, class)
		if notes := t.pending[claim]; len(notes) > 0 {
			last := len(notes) - 1
			t.take(notes[last].count, 0, 1, &notes[last].usage)
			t.keep(claim, notes[:last])
			return
		}
	}
}

// isInFlight reports whether a claim, which has a name now, is in flight to a class that has a capacity.
func (t *Tally) isInFlight(c claim.Claim, class uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sortIn()
	of := t.find(class)
	isTo := func(n *inFlight) bool { return of != nil && n.count.of == of }
	return slices.ContainsFunc(t.pending[claimHash(c.Namespace, c.Name, "", 0)], isTo) ||
		c.GenerateName != "" && len(t.pending[claimHash(c.Namespace, "", c.GenerateName, class)]) > 0
}

// Expire forgets claims that were given a class and have not been stored.
func (t *Tally) Expire(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sortIn()
	for claim := range t.pending {
		t.forget(claim, func(n *inFlight) bool { return now.Sub(n.since) >= InFlightWindow })
	}
}

// sortIn the notes. A claim that is given a class again, as by a client that tries again, counts once.
func (t *Tally) sortIn() {
	if t.pending == nil {
		t.pending = map[uint64][]*inFlight{}
	}
	var notes []*inFlight
	for n := t.notes.Swap(nil); n != nil; n = n.next {
		notes = append(notes, n)
	}
	for _, n := range slices.Backward(notes) {
		if n.named {
			t.forget(n.claim, anyNote)
		}
		n.next = nil
		t.pending[n.claim] = append(t.pending[n.claim], n)
	}
}

func anyNote(*inFlight) bool { return true }

// forget the claims that look the same and pass the test.
func (t *Tally) forget(claim uint64, test func(*inFlight) bool) {
	t.keep(claim, slices.DeleteFunc(t.pending[claim], func(n *inFlight) bool {
		if !test(n) {
			return false
		}
		t.take(n.count, 0, 1, &n.usage)
		t.Free()
		return true
	}))
}

func (t *Tally) keep(claim uint64, kept []*inFlight) {
	if len(kept) == 0 {
		delete(t.pending, claim)
		return
	}
	t.pending[claim] = kept
}
