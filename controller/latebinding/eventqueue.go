package latebinding

import (
	"context"
	"sync"

	"github.com/classbind/classbind/selector/fair"
)

// eventQueue is a queue of bounded length. A namespace may have up to three times as
// many events as places are free. Alone it fills three quarters, so that places are left
// for the next.
type eventQueue struct {
	// mu guards queue. It has no owner, because each use is one short step: whoever holds
	// mu waits for nobody.
	mu     sync.Mutex
	queue  fair.Queue[*queuedEvent]
	queued chan struct{} // one for each event
}

func newEventQueue(limit int) *eventQueue { return &eventQueue{queued: make(chan struct{}, limit)} }

// hasPlace reports whether a namespace may add an event while the queue may hold limit events.
func (q *eventQueue) hasPlace(namespace string, limit int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.place(namespace, limit)
}

func (q *eventQueue) place(namespace string, limit int) bool {
	return q.queue.LenOf(namespace) < 3*(min(limit, cap(q.queued))-q.queue.Len())
}

// push adds an event if hasPlace allows it, and reports whether it did.
func (q *eventQueue) push(e *queuedEvent, limit int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.place(e.claim.namespace, limit) {
		return false
	}
	q.queue.Push(e.claim.namespace, e)
	q.queued <- struct{}{}
	return true
}

// pop returns the next event, and waits for one until the context ends.
func (q *eventQueue) pop(ctx context.Context) (*queuedEvent, bool) {
	select {
	case <-ctx.Done():
		return nil, false
	case <-q.queued:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	_, e, _ := q.queue.Pop(nil)
	return e, true
}
