package race

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// watch the classes from now on, and have the judge observe them, until the context ends.
func (l *lane) watch(ctx context.Context) error {
	for i, kind := range l.kinds.names() {
		resource := l.cluster.metadata[i%len(l.cluster.metadata)].Resource(l.resource(kind))
		list, err := resource.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("cannot list classes of %q: %w", kind, err)
		}
		if err := Follow(ctx, list.ResourceVersion, resource.Watch, func(e watch.Event) { l.observe(kind, e) }); err != nil {
			return fmt.Errorf("cannot watch classes of %q: %w", kind, err)
		}
	}
	return nil
}

// Follow what a watch shows from a resourceVersion on, until the context ends.
func Follow(
	ctx context.Context, version string, start func(context.Context, metav1.ListOptions) (watch.Interface, error),
	observe func(watch.Event),
) error {
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFuncWithContext: start})
	if err != nil {
		return err
	}
	go func() {
		for e := range watcher.ResultChan() {
			observe(e)
		}
	}()
	return nil
}

func (l *lane) observe(kind string, e watch.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	object, err := meta.Accessor(e.Object)
	if e.Type == watch.Error || err != nil {
		l.err = fmt.Errorf("cannot go on watching %q: %w", kind, apierrors.FromObject(e.Object))
	} else if version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64); err != nil {
		l.err = fmt.Errorf("cannot order what happens: %w", err)
	} else {
		l.seen[kind] = version
		l.note(kind, version, e.Type != watch.Deleted, object)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lane) noteDefault(kind string, version uint64, there bool, object metav1.Object) {
	l.judge.Observe(Event{
		Version: version, Class: Class{kind, object.GetName()},
		Default:   there && object.GetDeletionTimestamp() == nil && object.GetAnnotations()[defaultAnnotation] == "true",
		Partition: object.GetLabels()[partitionLabel],
	})
}

// fenceName is of the class of each kind that only the fence writes to.
const fenceName = "fence"

// fence is a moment after everything that was written before, and up to which the
// watches have shown everything: each kind is written to, and has to come by.
func (l *lane) fence(ctx context.Context, kinds []string, objects func(kind string) dynamic.ResourceInterface) (uint64, error) {
	versions := make([]uint64, len(kinds))
	var writes errgroup.Group
	for i, kind := range kinds {
		writes.Go(func() error {
			var object *unstructured.Unstructured
			err := plainly(ctx, func() (err error) {
				object, err = annotate(ctx, objects(kind), fenceName, "fence", fmt.Sprintf(`"%d"`, rand.Uint64())) //nolint:gosec // It only has to change.
				return err
			})
			if err != nil {
				return fmt.Errorf("cannot write to %s/%s: %w", kind, fenceName, err)
			}
			versions[i], err = strconv.ParseUint(object.GetResourceVersion(), 10, 64)
			return err
		})
	}
	if err := writes.Wait(); err != nil {
		return 0, err
	}
	first := versions[0]
	for i, kind := range kinds {
		first = min(first, versions[i])
		if err := l.await(ctx, kind, versions[i]); err != nil {
			return 0, err
		}
	}
	return first, nil
}

// await the class kind's watch.
func (l *lane) await(ctx context.Context, kind string, version uint64) error {
	for {
		l.mu.Lock()
		seen, err, changed := l.seen[kind], l.err, l.changed
		l.mu.Unlock()
		if err != nil || seen >= version {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cannot see all that happened to classes of %q: %w", kind, ctx.Err())
		}
	}
}
