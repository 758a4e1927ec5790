package controller

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/classbind/classbind/selector"
)

// watch follows the classes of one kind. It is the store of a Reflector rather
// than an informer's handler, so that a class is held once, as the few fields
// that choosing needs, and not a second time as an object.
type watch struct {
	kind    *selector.ClassKind
	publish func(*selector.Index)
	stop    context.CancelFunc
	answers

	// dirty holds an item while there are changes to publish: however many come
	// while an index is made, one more index shows them all.
	dirty chan struct{}

	mu      sync.Mutex
	classes map[types.NamespacedName]*selector.Class
}

// startWatch follows the classes until it is stopped. Both publish, with every
// new index, and answered, with what the API server answers to a watch when it
// answers otherwise than before, are called from its own goroutines.
func startWatch(ctx context.Context, client *classClient, kind *selector.ClassKind, publish func(*selector.Index), answered func(error)) *watch {
	ctx, stop := context.WithCancel(ctx)
	w := &watch{kind: kind, publish: publish, stop: stop, dirty: make(chan struct{}, 1)}
	objects{
		name: kind.Name, client: client.metadata,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.list(ctx, kind, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return client.watch(ctx, kind, o)
		},
	}.follow(ctx, w, &w.answers, answered)
	go w.publishUntil(ctx)
	return w
}

func (w *watch) publishUntil(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.dirty:
		}
		w.mu.Lock()
		classes := slices.Collect(maps.Values(w.classes))
		w.mu.Unlock()
		index := selector.NewIndex(w.kind, classes)
		w.publish(index)
	}
}

func (w *watch) update(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// Add is called by the Reflector, as are Update, Delete, Replace and Resync.
func (w *watch) Add(object any) error {
	c, err := class(w.kind, object)
	if err != nil {
		return err
	}
	w.update(func() { w.classes[key(c)] = c })
	return nil
}

// Update a class.
func (w *watch) Update(object any) error { return w.Add(object) }

// Delete a class.
func (w *watch) Delete(object any) error {
	c, err := class(w.kind, object)
	if err != nil {
		return err
	}
	w.update(func() { delete(w.classes, key(c)) })
	return nil
}

// Replace all classes.
func (w *watch) Replace(objects []any, _ string) error {
	all := make(map[types.NamespacedName]*selector.Class, len(objects))
	for _, object := range objects {
		c, err := class(w.kind, object)
		if err != nil {
			return err
		}
		all[key(c)] = c
	}
	w.update(func() { w.classes = all })
	return nil
}

// Resync has nothing to do.
func (w *watch) Resync() error { return nil }

func key(c *selector.Class) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}
