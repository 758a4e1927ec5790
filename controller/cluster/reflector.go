// Package cluster reads what the API server serves: which resources there are, and the objects of one, cut to what is read of them.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

// listTimeout limits one page of a list. It is longer than an API server's own limit, 60 s: only one that never answers is asked again.
const listTimeout = 90 * time.Second

// watchPatience is how long a watch may go without an answer before a list is asked why. A client tries one that gets 429 again by itself.
const watchPatience = 2 * time.Second

// Objects are what a Reflector lists and watches.
type Objects struct {
	Name  string
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// Client reports whether it can list by a watch.
	Client any
	// Why returns the error of a list, which names the cause where a watch is not answered, or only with 429. It may be nil.
	Why func(context.Context) error
}

// watch the objects. Meanwhile observe gets the error of a list if there is no answer.
func (o *Objects) watch(ctx context.Context, options metav1.ListOptions, observe func(error)) (apiwatch.Interface, error) {
	if o.Why == nil {
		return o.Watch(ctx, options)
	}
	why := func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		return truncate.Error(cmp.Or(recovered.Do(func() error { err = o.Why(ctx); return nil }), err))
	}
	asking, answered := context.WithCancel(ctx)
	defer answered()
	asked := make(chan struct{})
	ask := time.AfterFunc(watchPatience, func() {
		defer recovered.Here()
		defer close(asked)
		if err := why(asking); err != nil && asking.Err() == nil {
			observe(err)
		}
	})
	events, err := o.Watch(ctx, options)
	if answered(); !ask.Stop() {
		<-asked
	}
	if apierrors.IsTooManyRequests(err) {
		err = cmp.Or(why(ctx), err)
	}
	return events, err
}

// Follow keeps ours up to date with the objects until the context ends. It calls answered, from a goroutine of its own, when the API
// server's answer to a list or a watch differs from the last one.
func Follow[T any](ctx context.Context, o Objects, ours Keeper[T], health *Health, answered func(error)) {
	observe := func(err error) {
		if ctx.Err() == nil && health.Observe(err) {
			answered(err)
		}
	}
	streamed := false // The objects come by a watch. Only the Reflector uses it, one call after another.
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			streamed = false
			list, err := o.List(ctx, options)
			if err = truncate.Error(err); err != nil { // Only the watch reports recovery.
				observe(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			streamed = options.SendInitialEvents != nil
			events, err := o.watch(ctx, options, observe)
			if err = truncate.Error(err); err != nil || !streamed { // A stream that begins may yet end with an error.
				observe(err)
			}
			return events, err
		},
	}, o.Client)
	replaced := func() {
		if streamed {
			observe(nil)
		}
	}
	watched := &store[T]{ours: ours, health: health, name: o.Name, log: logf.FromContext(ctx), replaced: replaced}
	reflector := cache.NewReflectorWithOptions(lw, nil, watched, cache.ReflectorOptions{
		Name: o.Name, TypeDescription: o.Name,
		// Notices a role that a vendor grants later within seconds. The default may wait for a minute.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second},
	})
	go func() {
		_ = recovered.Again(ctx, func(ctx context.Context) error { reflector.RunWithContext(ctx); return nil })
	}()
}

// Keeper keeps what is read of objects. It is called by one goroutine of the Reflector, and may panic.
type Keeper[T any] interface {
	// Read returns what is kept of an object. It reads what it returned, too, which must have the metadata by which the Reflector goes: a
	// Reflector holds all streamed objects until it has seen the last one, and authors may write a lot.
	Read(object any) (T, error)
	// Put an object that is new or has changed.
	Put(T)
	// Remove an object.
	Remove(T)
	// Replace all objects.
	Replace([]T)
}

// store wraps ours for the Reflector. It turns panics into errors, and records when the API server last confirmed the objects.
type store[T any] struct {
	// Store is nil. A Reflector transforms streamed objects only if its store is a whole cache.Store, but calls only the methods below.
	cache.Store
	ours   Keeper[T]
	health *Health
	name   string
	log    logr.Logger
	// replaced is called after the objects are.
	replaced func()
}

// Add is called by the Reflector, as are the others.
func (s *store[T]) Add(object any) error { return s.take(object, s.ours.Put) }

// Update an object.
func (s *store[T]) Update(object any) error { return s.Add(object) }

// Delete an object.
func (s *store[T]) Delete(object any) error { return s.take(object, s.ours.Remove) }

// take in a change. It returns no error, because the Reflector would log it with the whole object.
func (s *store[T]) take(object any, change func(T)) error {
	err := recovered.Do(func() error {
		read, err := s.ours.Read(object)
		if err == nil {
			change(read)
		}
		return err
	})
	if err != nil {
		s.log.Error(err, "Cannot process a change of an object", "resource", s.name)
	}
	return nil
}

// Replace all objects.
func (s *store[T]) Replace(objects []any, _ string) error {
	err := recovered.Do(func() (err error) {
		all := make([]T, len(objects))
		for i, object := range objects {
			if all[i], err = s.ours.Read(object); err != nil {
				return err
			}
		}
		s.ours.Replace(all)
		return nil
	})
	if err == nil {
		s.health.Confirm(time.Now())
		s.replaced()
	}
	return err
}

// Resync does nothing.
func (s *store[T]) Resync() error { return nil }

// UpdateResourceVersion is called after each event and each bookmark, by which the API server confirms that nothing changed.
func (s *store[T]) UpdateResourceVersion(string) { s.health.Confirm(time.Now()) }

// Transformer keeps what is read of an object.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(object any) (transformed any, err error) {
		err = recovered.Do(func() (err error) {
			transformed, err = s.ours.Read(object)
			return err
		})
		if err == nil {
			object = transformed
		}
		return object, nil // Taking in what cannot be read fails, too, and is logged.
	}
}

// Health reports whether the API server answers a watch, and how recently.
type Health struct {
	mu sync.Mutex // guards all below
	// err is the API server's last error, nil if it served the objects. since is when it last began or ceased to refuse them (403).
	err   error
	since time.Time
	// confirmed is when the API server last said how the objects are.
	confirmed time.Time
}

// Observe records the API server's answer, and reports whether it differs from the last one.
func (h *Health) Observe(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if apierrors.IsForbidden(err) != apierrors.IsForbidden(h.err) {
		h.since = time.Now()
	}
	news := (err == nil) != (h.err == nil) || err != nil && err.Error() != h.err.Error()
	h.err = err
	return news
}

// LastError returns the API server's last error, and since when it refuses the objects, or does not.
func (h *Health) LastError() (since time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.err
}

// Confirm records that the API server said how the objects are.
func (h *Health) Confirm(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed = now
}

// LastConfirmed is when the API server last said how the objects are; zero means never.
func (h *Health) LastConfirmed() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.confirmed
}
