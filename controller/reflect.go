package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

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
func (o objects) follow(ctx context.Context, store cache.ReflectorStore, answers *answers, answered func(error)) {
	observe := func(err error) {
		if ctx.Err() == nil && answers.observe(err) {
			answered(err)
		}
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := o.list(ctx, options)
			if err != nil { // That all is well is for the watch to say.
				observe(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			events, err := o.watch(ctx, options)
			observe(err)
			return events, err
		},
	}, o.client)
	reflector := cache.NewReflectorWithOptions(lw, nil, store, cache.ReflectorOptions{
		Name: o.name, TypeDescription: o.name,
		// A role that a vendor grants later is noticed within seconds, where the
		// default would wait for up to a minute.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second},
	})
	go reflector.RunWithContext(ctx)
}

// answers to a watch: the last, and what of it is news.
type answers struct {
	mu sync.Mutex
	// err is what the API server last answered instead of the objects, and since
	// when it has refused them, or not.
	err   error
	since time.Time
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
