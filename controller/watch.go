package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/classbind/classbind/selector"
)

// watch follows the classes of one kind. It is the store of a Reflector rather
// than an informer's handler, so that a class is held once, as the few fields
// that choosing needs, and not a second time as an object.
type watch struct {
	kind    *selector.ClassKind
	publish func(*selector.Index)
	stop    context.CancelFunc

	// dirty holds an item while there are changes to publish: however many come
	// while an index is made, one more index shows them all.
	dirty chan struct{}

	mu      sync.Mutex
	classes map[types.NamespacedName]*selector.Class
	// err is what the API server last answered instead of the classes, and since
	// when it has refused them, or not.
	err   error
	since time.Time
}

// startWatch follows the classes until it is stopped. Both publish, with every
// new index, and answered, with what the API server answers to a watch when it
// answers otherwise than before, are called from its own goroutines.
func startWatch(ctx context.Context, client *classClient, kind *selector.ClassKind, publish func(*selector.Index), answered func(error)) *watch {
	ctx, stop := context.WithCancel(ctx)
	w := &watch{kind: kind, publish: publish, stop: stop, dirty: make(chan struct{}, 1)}
	observe := func(err error) {
		if ctx.Err() == nil && w.observe(err) {
			answered(err)
		}
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.list(ctx, kind, o)
			if err != nil { // That all is well is for the watch to say.
				observe(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			events, err := client.watch(ctx, kind, o)
			observe(err)
			return events, err
		},
	}, client.metadata)
	reflector := cache.NewReflectorWithOptions(lw, nil, w, cache.ReflectorOptions{
		Name: kind.Name, TypeDescription: kind.Name,
		// A role that a vendor grants later is noticed within seconds, where the
		// default would wait for up to a minute.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second},
	})
	go reflector.RunWithContext(ctx)
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

// observe records what the API server answered and says whether that is news.
func (w *watch) observe(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if apierrors.IsForbidden(err) != apierrors.IsForbidden(w.err) {
		w.since = time.Now()
	}
	news := (err == nil) != (w.err == nil) || err != nil && err.Error() != w.err.Error()
	w.err = err
	return news
}

// lastError is what the API server last answered instead of the classes, and
// since when it has refused them, or not.
func (w *watch) lastError() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since, w.err
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
