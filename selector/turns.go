package selector

import (
	"sync"
	"sync/atomic"
	"time"
)

// mostTurns are remembered, of classes that are gone, too: some 15 MB.
const mostTurns = 1 << 17

// turns remembers when each class was last given to a claim of one kind, for
// RoundRobin: the candidate that was given the longest ago is next. That is
// exactly in turn where all claims ask for the same classes, however many
// change, and where they ask for different ones it is so over all of them: a
// counter for all selectors would give each only some of its classes, and one
// for each selector is as many as authors of claims make up.
//
// A class that has had no turn yet is next. Which of several, the draw says, not
// their order: else every start of a replica would begin with the same class.
//
// Each replica has turns of its own, so that of n replicas, each of which gives
// its candidates turns that differ by one at most, all together do by n.
type turns struct {
	now  atomic.Int64
	last sync.Map // place of the class: *atomic.Int64
	size atomic.Int64
}

// rank is the higher the longer ago a class had its turn.
func (t *turns) rank(c *Class) int64 {
	if last, ok := t.last.Load(c.place); ok {
		return -last.(*atomic.Int64).Load()
	}
	return 0
}

// commit takes the class's turn, unless another claim has taken it meanwhile.
func (t *turns) commit(_ Claim, c *Class, rank int64, _ time.Time) bool {
	return t.take(c.place, -rank)
}

// take the turn of a class that had its last then. It is false where another
// claim has taken it meanwhile.
func (t *turns) take(class uint64, last int64) bool {
	entry, ok := t.last.Load(class)
	if !ok {
		var loaded bool
		if entry, loaded = t.last.LoadOrStore(class, new(atomic.Int64)); !loaded && t.size.Add(1) > mostTurns {
			t.forget()
		}
	}
	return entry.(*atomic.Int64).CompareAndSwap(last, t.now.Add(1))
}

// forget the longest ago: at most as many as half of all have had a turn since.
func (t *turns) forget() {
	since := t.now.Load() - mostTurns/2
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
