package loop

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
)

// Listeners are called with each value until their contexts end. The leader's context ends when it loses its Lease.
type Listeners[T any] struct {
	mu  sync.Mutex
	all []listener[T] // replaced at each change, never modified
}

type listener[T any] struct {
	ctx  context.Context
	call func(T)
}

// Add has a function called with each value from now on, until the context ends.
func (l *Listeners[T]) Add(ctx context.Context, call func(T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(slices.Clip(l.all), listener[T]{ctx, call})
}

// Notify calls all functions with a value.
func (l *Listeners[T]) Notify(value T) {
	l.mu.Lock()
	l.all = slices.DeleteFunc(slices.Clone(l.all), func(l listener[T]) bool { return l.ctx.Err() != nil })
	all := l.all
	l.mu.Unlock()
	for _, l := range all {
		l.call(value)
	}
}

// Published has what the last round found, by name, and reports each name whose value has changed.
type Published[V any] struct {
	Listeners[string]
	values atomic.Pointer[map[string]V]
}

// Get returns what was found for a name, false if nothing was.
func (p *Published[V]) Get(name string) (value V, known bool) {
	if values := p.values.Load(); values != nil {
		value, known = (*values)[name]
	}
	return value, known
}

// Set replaces all.
func (p *Published[V]) Set(values map[string]V) {
	before := p.values.Swap(&values)
	if before == nil {
		before = &map[string]V{}
	}
	names := maps.Clone(*before)
	maps.Copy(names, values)
	for name := range names {
		was, known := (*before)[name]
		if is, still := values[name]; known != still || !reflect.DeepEqual(was, is) {
			p.Notify(name)
		}
	}
}
