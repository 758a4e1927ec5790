package registry

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/classbind/classbind/controller/cluster"
)

// collection of the objects of one kind: selector.Classes, or selector.Objects. Neither is
// ever changed.
type collection[S any] interface {
	comparable
	Without(namespace, name string) S
}

// kept is what a watch keeps of the objects of a kind.
type kept[S any] interface {
	resourceKind
	// strip removes from an object what nobody reads. A Reflector holds all streamed objects
	// until it has seen the last one, and authors may write a lot.
	strip(object any) (any, error)
	// with returns what is known with an object, which replaces the one that there is.
	with(known S, object any) (S, error)
	// all returns these objects. What is known of them is not read again.
	all(known S, objects []any) (S, error)
}

// watch follows the classes of one kind, or the objects of a RelatedKind. It is the store of
// a Reflector rather than an informer's handler, so that an object is held once, as the few
// fields that matter, and not a second time as a whole.
type watch[S collection[S]] struct {
	cluster.Health
	name    string
	kept    kept[S]
	publish func(S)
	stop    context.CancelFunc

	// objects as they were last seen. Only the Reflector uses them.
	objects S
}

// start follows the objects until the watch is stopped. It calls publish with all of them
// after each change, and answered when the API server's answer differs from the last one,
// both from goroutines of its own.
func (w *watch[S]) start(ctx context.Context, client *classClient, answered func(error)) {
	// The watch outlives the reconciliation that starts it; stop ends it, or the end of the process.
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	client.objects(w.name, w.kept).Follow(ctx, w, &w.Health, answered)
}

// set publishes nothing if nothing that matters has changed.
func (w *watch[S]) set(objects S) {
	if objects != w.objects {
		w.objects = objects
		w.publish(objects)
	}
}

// Transform is called by the Reflector, as are Put, Remove and Replace.
func (w *watch[S]) Transform(object any) (any, error) { return w.kept.strip(object) }

// Put an object that is new or has changed.
func (w *watch[S]) Put(object any) error {
	objects, err := w.kept.with(w.objects, object)
	if err == nil {
		w.set(objects)
	}
	return err
}

// Remove an object.
func (w *watch[S]) Remove(object any) error {
	m, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("cannot read an object of %q: %w", w.name, err)
	}
	w.set(w.objects.Without(m.GetNamespace(), m.GetName()))
	return nil
}

// Replace all objects.
func (w *watch[S]) Replace(objects []any) error {
	all, err := w.kept.all(w.objects, objects)
	if err == nil {
		w.set(all)
	}
	return err
}

// followed is what is known of the objects of one kind.
type followed[S collection[S]] struct {
	// watch of the objects; nil while there is none, and err says why.
	watch *watch[S]
	err   error
	// since is when the API server first gave the answer in err.
	since time.Time
	// objects in the inventory, nil if they have never been listed. They are those of the
	// previous watch until this one has synced: a changed registration takes none away while
	// the API server does not answer.
	objects S
}

// stop the watch, if there is one.
func (f *followed[S]) stop() {
	if f != nil && f.watch != nil {
		f.watch.stop()
	}
}

// served reports whether the API server does not answer the watch with 404.
func (f *followed[S]) served() bool {
	_, err := f.watch.LastError()
	return !apierrors.IsNotFound(err)
}

// sinceOf is since when the API server gives this answer.
func (f *followed[S]) sinceOf(why error) time.Time {
	if f != nil && f.err != nil && f.err.Error() == why.Error() {
		return f.since
	}
	return time.Now()
}
