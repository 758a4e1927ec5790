package latebinding

import (
	"context"
	"sync"
)

// inTurn is a queue that takes turns over namespaces: many items of one do not delay
// those of another. Items of one namespace keep their order. It is a workqueue.Queue;
// its user locks it.
type inTurn[T comparable] struct {
	namespaceOf func(T) string
	items       map[string][]T
	// next are the namespaces that have items, in the order of their turns.
	next   []string
	length int
}

func newInTurn[T comparable](namespaceOf func(T) string) *inTurn[T] {
	return &inTurn[T]{namespaceOf: namespaceOf, items: map[string][]T{}}
}

// Touch leaves an item that is queued already in its place.
func (*inTurn[T]) Touch(T) {}

// Push adds an item at the end of its namespace.
func (q *inTurn[T]) Push(item T) {
	namespace := q.namespaceOf(item)
	if len(q.items[namespace]) == 0 {
		q.next = append(q.next, namespace)
	}
	q.items[namespace] = append(q.items[namespace], item)
	q.length++
}

// Len counts all items.
func (q *inTurn[T]) Len() int { return q.length }

// Pop returns the first item of the namespace whose turn it is. The queue must not be empty.
func (q *inTurn[T]) Pop() T {
	namespace := q.next[0]
	q.next = q.next[1:]
	items := q.items[namespace]
	item := items[0]
	items[0] = *new(T)
	if items = items[1:]; len(items) == 0 {
		delete(q.items, namespace)
	} else {
		q.items[namespace] = items
		q.next = append(q.next, namespace)
	}
	q.length--
	return item
}

// boundedQueue is a queue of bounded length. A namespace may have up to three times as
// many items as places are free. Alone it fills three quarters, so that places are left
// for the next.
type boundedQueue[T comparable] struct {
	// mu guards queue. It has no owner, because each use is one short step: whoever holds
	// mu waits for nobody.
	mu     sync.Mutex
	queue  *inTurn[T]
	queued chan struct{} // one for each item
}

func newBoundedQueue[T comparable](limit int, namespaceOf func(T) string) *boundedQueue[T] {
	return &boundedQueue[T]{queue: newInTurn(namespaceOf), queued: make(chan struct{}, limit)}
}

// hasPlace says whether a namespace may add an item while the queue may hold limit items.
func (s *boundedQueue[T]) hasPlace(namespace string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place(namespace, limit)
}

func (s *boundedQueue[T]) place(namespace string, limit int) bool {
	return len(s.queue.items[namespace]) < 3*(min(limit, cap(s.queued))-s.queue.Len())
}

// push adds an item if hasPlace allows it, and says whether it did.
func (s *boundedQueue[T]) push(item T, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.place(s.queue.namespaceOf(item), limit) {
		return false
	}
	s.queue.Push(item)
	s.queued <- struct{}{}
	return true
}

// pop returns the next item, and waits for one until the context ends.
func (s *boundedQueue[T]) pop(ctx context.Context) (item T, ok bool) {
	select {
	case <-ctx.Done():
		return item, false
	case <-s.queued:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Pop(), true
}

func (s *boundedQueue[T]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Len()
}
