// Package fair shares what is scarce among keys, such as namespaces: many requests of one do not delay those of another.
package fair

import "slices"

// Queue takes turns over keys. Items of one key keep their order. Its user locks it. The zero value is an empty queue.
type Queue[T comparable] struct {
	items map[string][]T
	// next are the keys that have items, in the order of their turns.
	next   []string
	length int
}

// Push adds an item at the end of its key.
func (q *Queue[T]) Push(key string, item T) {
	if q.items == nil {
		q.items = map[string][]T{}
	}
	if len(q.items[key]) == 0 {
		q.next = append(q.next, key)
	}
	q.items[key] = append(q.items[key], item)
	q.length++
}

// Len counts all items.
func (q *Queue[T]) Len() int { return q.length }

// LenOf counts the items of one key.
func (q *Queue[T]) LenOf(key string) int { return len(q.items[key]) }

// Pop removes and returns the first item that may leave, of the key whose turn it is, or false. With a nil function, every item may.
func (q *Queue[T]) Pop(may func(key string, item T) bool) (key string, item T, ok bool) {
	for i, key := range q.next {
		for at, item := range q.items[key] {
			if may == nil || may(key, item) {
				q.next = without(q.next, i)
				if q.removeAt(key, at) {
					q.next = append(q.next, key)
				}
				return key, item, true
			}
		}
	}
	return key, item, false
}

// Remove an item, and report whether it was queued.
func (q *Queue[T]) Remove(key string, item T) bool {
	at := slices.Index(q.items[key], item)
	if at < 0 {
		return false
	}
	if !q.removeAt(key, at) {
		q.next = without(q.next, slices.Index(q.next, key))
	}
	return true
}

// removeAt reports whether the key has other items.
func (q *Queue[T]) removeAt(key string, at int) bool {
	q.length--
	if q.items[key] = without(q.items[key], at); len(q.items[key]) > 0 {
		return true
	}
	delete(q.items, key)
	return false
}

// without removes an element. It moves no others to remove the first: there may be very many.
func without[T any](s []T, at int) []T {
	if at > 0 {
		return slices.Delete(s, at, at+1)
	}
	s[0] = *new(T)
	return s[1:]
}
