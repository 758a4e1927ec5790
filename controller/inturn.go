package controller

import (
	"context"
	"sync"
)

// inTurn is a queue that gives out the items of each namespace in their order, and
// takes turns over namespaces: many items of one do not delay those of another.
// It is a workqueue.Queue, which the workqueue locks.
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

// Touch an item that is queued already: it keeps its place.
func (*inTurn[T]) Touch(T) {}

// Push an item to the end of its namespace's.
func (q *inTurn[T]) Push(item T) {
	namespace := q.namespaceOf(item)
	if len(q.items[namespace]) == 0 {
		q.next = append(q.next, namespace)
	}
	q.items[namespace] = append(q.items[namespace], item)
	q.length++
}

// Len of all.
func (q *inTurn[T]) Len() int { return q.length }

// Pop the first item of the namespace whose turn it is. There has to be one.
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

// shared is a queue of bounded length. A namespace has at most three times as many
// items in it as there are places free: three quarters of all where it is the only
// one, and some are left for the next.
type shared[T comparable] struct {
	mu     sync.Mutex
	queue  *inTurn[T]
	queued chan struct{} // one for each item
}

func newShared[T comparable](most int, namespaceOf func(T) string) *shared[T] {
	return &shared[T]{queue: newInTurn(namespaceOf), queued: make(chan struct{}, most)}
}

// hasPlace for another item of a namespace, where all may have so many.
func (s *shared[T]) hasPlace(namespace string, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place(namespace, most)
}

func (s *shared[T]) place(namespace string, most int) bool {
	return len(s.queue.items[namespace]) < 3*(min(most, cap(s.queued))-s.queue.Len())
}

// push an item, if there is a place for it, where all may have so many.
func (s *shared[T]) push(item T, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.place(s.queue.namespaceOf(item), most) {
		return false
	}
	s.queue.Push(item)
	s.queued <- struct{}{}
	return true
}

// pop the next item, or wait for it until the context ends.
func (s *shared[T]) pop(ctx context.Context) (item T, ok bool) {
	select {
	case <-ctx.Done():
		return item, false
	case <-s.queued:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Pop(), true
}

func (s *shared[T]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Len()
}
