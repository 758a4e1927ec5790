package controller

import (
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

	"github.com/classbind/classbind/selector/brief"
)

// listTimeout is for one page of a list: longer than an API server takes for any
// (60 s), so that only one that never answers is asked again.
const listTimeout = 90 * time.Second

// objects are what a Reflector lists and watches.
type objects struct {
	name  string
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// client is asked whether it can list by a watch.
	client any
}

// follow the objects in a store of ours until the context ends. What the API
// server answers to a watch, when it answers otherwise than before, is called
// from a goroutine of its own.
func (o objects) follow(ctx context.Context, ours transformer, answers *answers, answered func(error)) {
	observe := func(err error) {
		if ctx.Err() == nil && answers.observe(err) {
			answered(err)
		}
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			list, err := o.list(ctx, options)
			if err = brief.Error(err); err != nil { // Only the watch reports that all is well.
				observe(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			events, err := o.watch(ctx, options)
			err = brief.Error(err)
			observe(err)
			return events, err
		},
	}, o.client)
	reflector := cache.NewReflectorWithOptions(lw, nil, &store{ours: ours, answers: answers, name: o.name, log: logf.FromContext(ctx)}, cache.ReflectorOptions{
		Name: o.name, TypeDescription: o.name,
		// A role that a vendor grants later is noticed within seconds, where the
		// default would wait for up to a minute.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second},
	})
	go reflector.RunWithContext(ctx)
}

// transformer is a store that says what it keeps of an object.
type transformer interface {
	cache.ReflectorStore
	Transformer() cache.TransformFunc
}

// store is ours as the Reflector sees it: its panics are errors, and it notes when
// the API server was last heard.
type store struct {
	// Store is nil. A Reflector transforms what is streamed to it only where its
	// store is a whole cache.Store, of which it then calls no more than is below.
	cache.Store
	ours    transformer
	answers *answers
	name    string
	log     logr.Logger
}

// Add is called by the Reflector, as are the others. It has no error, which would
// be logged with the whole object.
func (s *store) Add(object any) error { return s.take(func() error { return s.ours.Add(object) }) }

// Update an object.
func (s *store) Update(object any) error {
	return s.take(func() error { return s.ours.Update(object) })
}

// Delete an object.
func (s *store) Delete(object any) error {
	return s.take(func() error { return s.ours.Delete(object) })
}

func (s *store) take(change func() error) error {
	if err := recovered(change); err != nil {
		s.log.Error(err, "Cannot take in a change of an object", "resource", s.name)
	}
	return nil
}

// Replace all objects.
func (s *store) Replace(objects []any, version string) error {
	err := recovered(func() error { return s.ours.Replace(objects, version) })
	if err == nil {
		s.answers.hear(time.Now())
	}
	return err
}

// Resync has nothing to do.
func (s *store) Resync() error { return nil }

// UpdateResourceVersion is called after each event, and for a bookmark, by which
// the API server says from time to time that there was none.
func (s *store) UpdateResourceVersion(string) { s.answers.hear(time.Now()) }

// Transformer takes off an object what nobody reads.
func (s *store) Transformer() cache.TransformFunc {
	transform := s.ours.Transformer()
	return func(object any) (transformed any, err error) {
		err = recovered(func() (err error) {
			transformed, err = transform(object)
			return err
		})
		if err != nil {
			return object, nil //nolint:nilerr // To take it in fails, too, and says so.
		}
		return transformed, nil
	}
}

// answers to a watch: the last, and what of it is news.
type answers struct {
	mu sync.Mutex // guards all below
	// err is what the API server last answered instead of the objects, and since
	// when it has refused them, or not.
	err   error
	since time.Time
	// heard is when the API server last said how the objects are.
	heard time.Time
}

// observe records what the API server answered and says whether that is news.
func (a *answers) observe(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if apierrors.IsForbidden(err) != apierrors.IsForbidden(a.err) {
		a.since = time.Now()
	}
	news := (err == nil) != (a.err == nil) || err != nil && err.Error() != a.err.Error()
	a.err = err
	return news
}

// lastError is what the API server last answered instead of the objects, and
// since when it has refused them, or not.
func (a *answers) lastError() (since time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since, a.err
}

func (a *answers) hear(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = now
}

// lastHeard is when the API server last said how the objects are; zero, never.
func (a *answers) lastHeard() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heard
}
