package selector

import (
	"sync"
	"sync/atomic"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// turns remembers when each class was last given to a claim of one kind, for RoundRobin: the candidate whose turn is the longest ago is
// next. If all claims ask for the same classes, these take turns exactly, however they change. If claims ask for different classes, the
// turns are even over all of them. One counter for all selectors would give each selector only some of its classes, and a counter for each
// selector would take as much memory as authors of claims like.
//
// Classes without a turn come first. The draw decides among them, not their order: otherwise every replica would start with the same class.
//
// Each replica has its own turns. Those of one replica differ by one at most, so those of n replicas together differ by n at most.
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
func (t *turns) commit(_ string, c *inventory.Class, rank int64) bool {
	entry, ok := t.last.Load(c.Place)
	if !ok {
		var loaded bool
		if entry, loaded = t.last.LoadOrStore(c.Place, new(atomic.Int64)); !loaded && t.size.Add(1) > v1beta1.MaxTurns {
			t.forget()
		}
	}
	return entry.(*atomic.Int64).CompareAndSwap(-rank, t.now.Add(1))
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
