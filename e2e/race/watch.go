package race

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// watch what resources have from now on, by kind, and have it noted, until the context ends.
func (l *lane) watch(ctx context.Context, resources map[string]dynamic.ResourceInterface) error {
	for kind, resource := range resources {
		list := &unstructured.UnstructuredList{}
		if err := eventually(ctx, "list "+kind, func() (err error) {
			list, err = resource.List(ctx, metav1.ListOptions{})
			return err
		}); err != nil {
			return err
		}
		if err := Follow(ctx, list.GetResourceVersion(), resource.Watch, func(e watch.Event) { l.observe(kind, e) }); err != nil {
			return fmt.Errorf("cannot watch %q: %w", kind, err)
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
	object, is := e.Object.(*unstructured.Unstructured)
	if e.Type == watch.Error || !is {
		l.err = fmt.Errorf("cannot go on watching %q: %w", kind, apierrors.FromObject(e.Object))
	} else if version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64); err != nil {
		l.err = fmt.Errorf("cannot order what happens: %w", err)
	} else {
		l.seen[kind] = version
		l.note(kind, version, e.Type != watch.Deleted, object)
	}
}

func (l *lane) note(kind string, version uint64, there bool, object *unstructured.Unstructured) {
	c := change{version: version, class: Class{kind, object.GetName()}}
	if there && object.GetDeletionTimestamp() == nil && object.GetAnnotations()[defaultAnnotation] == "true" {
		for _, claimKind := range l.kinds[kind] {
			c.seats = append(c.seats, seat{claimKind, object.GetLabels()[partitionLabel]})
		}
	}
	l.judge.observe(c)
}

// fenceName is of the class of each kind that only the fence writes to.
const fenceName = "fence"

// fence is a moment after everything that was written before, and up to which the
// watches have shown everything: each kind is written to, and has to come by.
func (l *lane) fence(ctx context.Context) (uint64, error) {
	kinds := l.kinds.names()
	versions := make([]uint64, len(kinds))
	var writes errgroup.Group
	for i, kind := range kinds {
		writes.Go(func() error {
			var object *unstructured.Unstructured
			err := plainly(ctx, func() (err error) {
				object, err = annotate(ctx, l.classes(kind), fenceName, "fence", fmt.Sprintf(`"%d"`, rand.Uint64())) //nolint:gosec // It only has to change.
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
	err := wait.PollUntilContextCancel(ctx, 2*time.Millisecond, true, func(context.Context) (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.seen[kind] >= version, l.err
	})
	if err != nil {
		return fmt.Errorf("cannot see all that happened to classes of %q: %w", kind, err)
	}
	return nil
}
