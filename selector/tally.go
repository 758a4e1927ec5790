package selector

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// InFlightWindow is how long a claim counts for its class without being seen stored.
// kube-apiserver takes less for any write (34 s).
const InFlightWindow = 40 * time.Second

// Tally counts the claims of one kind by class: those seen bound, and those in flight,
// which have a class but are not seen stored yet. To choose only loads numbers. To
// commit a choice adds one, and leaves a note with the claim.
//
// Each of several replicas knows its own claims at once, and those of the others when
// they are stored, some milliseconds later. So each spreads its own claims evenly, and
// the sum is even. If one class has fewer claims than all others, the replicas overshoot
// by as many claims as arrive in that delay. Replicas that see equal counts do not all
// take the same class: the weighted draw decides among equals, seeded by the claim. A
// claim without a name cannot be told from another replica's with the same generateName
// and class, so one of them may be forgotten some milliseconds early.
type Tally struct {
	// slots is a hash table, at most half full. A larger one replaces it.
	slots atomic.Pointer[[]atomic.Pointer[Count]]
	// notes is a stack of the claims that were committed since sortIn last ran.
	notes atomic.Pointer[inFlight]

	// growing is held, for reading, by the watch while it adds to a count.
	growing sync.RWMutex
	used    int

	mu      sync.Mutex
	pending map[uint64]*inFlight // by claim, a list of those that look the same
}

// Count of the claims of one class.
type Count struct {
	class           uint64
	bound, inFlight atomic.Int64
}

// Unbind takes back one Bind.
func (c *Count) Unbind() { c.bound.Add(-1) }

type inFlight struct {
	claim  uint64
	Target bool
	count  *Count
	since  time.Time
	next   *inFlight
}

// claims of a class; a nil Tally knows of none.
func (t *Tally) claims(class uint64) int64 {
	if t == nil {
		return 0
	}
	if c := t.find(class); c != nil {
		return c.bound.Load() + c.inFlight.Load()
	}
	return 0
}

// BoundClaims is how many claims of the kind were seen bound to a class.
func (k *ClaimKind) BoundClaims(c *inventory.Class) int64 {
	if k.Tally == nil {
		return 0
	}
	if n := k.Tally.find(k.CountedAs(c)); n != nil {
		return n.bound.Load()
	}
	return 0
}

func (t *Tally) find(class uint64) *Count {
	slots := t.slots.Load()
	if slots == nil {
		return nil
	}
	for i := class; ; i++ {
		c := (*slots)[i%uint64(len(*slots))].Load()
		if c == nil || c.class == class {
			return c
		}
	}
}

// Bind counts a claim as seen bound to a class that BoundTo gave, until Unbind;
// nil if that is none.
func (t *Tally) Bind(class uint64) *Count {
	if class == 0 {
		return nil
	}
	return t.add(class, 1, 0)
}

// add claims to the count of a class. A count that no claim has been added to yet
// would be left out by a table that grows meanwhile.
func (t *Tally) add(class uint64, bound, inFlight int64) *Count {
	t.growing.RLock()
	c := t.find(class)
	if c != nil {
		c.bound.Add(bound)
		c.inFlight.Add(inFlight)
	}
	t.growing.RUnlock()
	if c != nil {
		return c
	}
	t.growing.Lock()
	defer t.growing.Unlock()
	if c = t.find(class); c == nil {
		slots := t.slots.Load()
		if slots == nil || 2*(t.used+1) > len(*slots) {
			slots = t.grow(slots)
		}
		c = &Count{class: class}
		put(*slots, c)
		t.used++
	}
	c.bound.Add(bound)
	c.inFlight.Add(inFlight)
	return c
}

// grow leaves out the classes that have no claims any more.
func (t *Tally) grow(old *[]atomic.Pointer[Count]) *[]atomic.Pointer[Count] {
	var kept []*Count
	if old != nil {
		for i := range *old {
			if c := (*old)[i].Load(); c != nil && (c.bound.Load() != 0 || c.inFlight.Load() != 0) {
				kept = append(kept, c)
			}
		}
	}
	slots := make([]atomic.Pointer[Count], max(64, 4*(len(kept)+1)))
	for _, c := range kept {
		put(slots, c)
	}
	t.used = len(kept)
	t.slots.Store(&slots)
	return &slots
}

func put(slots []atomic.Pointer[Count], c *Count) {
	for i := c.class; ; i++ {
		if slots[i%uint64(len(slots))].CompareAndSwap(nil, c) {
			return
		}
	}
}

// counts rank the classes of a kind by the fewest claims.
type counts struct{ kind *ClaimKind }

func (n counts) rank(_ string, c *inventory.Class) int64 {
	return -n.kind.Tally.claims(n.kind.CountedAs(c))
}

// commit counts the claim as in flight. A claim that has no name yet is known by its
// generateName.
func (n counts) commit(claim claim.Claim, c *inventory.Class, _ int64, now time.Time) bool {
	if n.kind.Tally != nil {
		n.kind.Tally.reserve(claim, n.kind.CountedAs(c), now)
	}
	return true
}

func (t *Tally) reserve(claim claim.Claim, class uint64, now time.Time) {
	// A claim takes no lock but for a class that is new here. Should a table that
	// grows leave the count out at this moment, one claim in flight is not seen.
	count := t.find(class)
	if count == nil {
		count = t.add(class, 0, 1)
	} else {
		count.inFlight.Add(1)
	}
	note := &inFlight{
		claim: claimHash(claim.Namespace, claim.Name, claim.GenerateName, class), Target: claim.Name != "",
		count: count, since: now,
	}
	for {
		note.next = t.notes.Load()
		if t.notes.CompareAndSwap(note.next, note) {
			return
		}
	}
}

// claimHash is the same for claims that look the same: those without a name that
// were given the same class, for one.
func claimHash(namespace, name, generateName string, class uint64) uint64 {
	if name != "" {
		return maphash.Comparable(claim.Seed, [...]string{namespace, name})
	}
	return maphash.Comparable(claim.Seed, struct {
		namespace, generateName string
		class                   uint64
	}{namespace, generateName, class})
}

// Seen says that a claim is stored and bound, so that it is not in flight any more.
func (t *Tally) Seen(namespace, name, generateName string, classes [2]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sortIn()
	named := claimHash(namespace, name, "", 0)
	if t.pending[named] != nil || generateName == "" {
		t.forget(named, func(*inFlight) bool { return true })
		return
	}
	for _, class := range classes {
		claim := claimHash(namespace, "", generateName, class)
		if n := t.pending[claim]; n != nil {
			n.count.inFlight.Add(-1)
			t.keep(claim, n.next)
			return
		}
	}
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

// sortIn the notes. A claim that is given a class again, as by a client that
// tries again, counts once.
func (t *Tally) sortIn() {
	if t.pending == nil {
		t.pending = map[uint64]*inFlight{}
	}
	var oldestFirst *inFlight
	for n := t.notes.Swap(nil); n != nil; {
		next := n.next
		n.next, oldestFirst = oldestFirst, n
		n = next
	}
	for n := oldestFirst; n != nil; {
		next := n.next
		if n.Target {
			t.forget(n.claim, func(*inFlight) bool { return true })
		}
		n.next = t.pending[n.claim]
		t.pending[n.claim] = n
		n = next
	}
}

// forget those of the claims that look the same of which the test holds.
func (t *Tally) forget(claim uint64, test func(*inFlight) bool) {
	var kept *inFlight
	for n := t.pending[claim]; n != nil; {
		next := n.next
		if test(n) {
			n.count.inFlight.Add(-1)
		} else {
			n.next, kept = kept, n
		}
		n = next
	}
	t.keep(claim, kept)
}

func (t *Tally) keep(claim uint64, kept *inFlight) {
	if kept == nil {
		delete(t.pending, claim)
		return
	}
	t.pending[claim] = kept
}

// turns remembers when each class was last given to a claim of one kind, for
// RoundRobin: the candidate whose turn is the longest ago is next. If all claims ask
// for the same classes, these take turns exactly, however they change. If claims ask for
// different classes, the turns are even over all of them. One counter for all selectors
// would give each selector only some of its classes, and a counter for each selector
// would take as much memory as authors of claims like.
//
// Classes without a turn come first. The draw decides among them, not their order:
// otherwise every replica would start with the same class.
//
// Each replica has its own turns. Those of one replica differ by one at most, so
// those of n replicas together differ by n at most.
type turns struct {
	now  atomic.Int64
	last sync.Map // place of the class: *atomic.Int64
	size atomic.Int64
}

// rank is higher, the longer ago the class had its turn.
func (t *turns) rank(_ string, c *inventory.Class) int64 {
	if last, ok := t.last.Load(c.Place); ok {
		return -last.(*atomic.Int64).Load()
	}
	return 0
}

// commit takes the class's turn. It fails if another claim has taken it.
func (t *turns) commit(_ claim.Claim, c *inventory.Class, rank int64, _ time.Time) bool {
	return t.take(c.Place, -rank)
}

// take gives a class its turn, if its last turn is still the given one.
func (t *turns) take(class uint64, last int64) bool {
	entry, ok := t.last.Load(class)
	if !ok {
		var loaded bool
		if entry, loaded = t.last.LoadOrStore(class, new(atomic.Int64)); !loaded && t.size.Add(1) > v1beta1.MaxTurns {
			t.forget()
		}
	}
	return entry.(*atomic.Int64).CompareAndSwap(last, t.now.Add(1))
}

// forget drops the oldest turns: all but the latest half.
func (t *turns) forget() {
	since := t.now.Load() - v1beta1.MaxTurns/2
	t.last.Range(func(class, last any) bool {
		// One that has none yet is about to have its turn.
		if n := last.(*atomic.Int64).Load(); n != 0 && n <= since {
			if _, there := t.last.LoadAndDelete(class); there {
				t.size.Add(-1)
			}
		}
		return true
	})
}
