package loop

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"
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

// Requests is a source of reconciliations. When its controller starts, it calls listen with a function that requests one of the object with
// a name, after a delay.
func Requests(listen func(ctx context.Context, request func(name string, after time.Duration))) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		listen(ctx, func(name string, after time.Duration) {
			queue.AddAfter(ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}, after)
		})
		return nil
	})
}

// RequestsFrom is a source of reconciliations of the objects whose names a listener gets.
func RequestsFrom(listen func(ctx context.Context, call func(name string)), after time.Duration) source.Source {
	return Requests(func(ctx context.Context, request func(string, time.Duration)) {
		listen(ctx, func(name string) { request(name, after) })
	})
}
