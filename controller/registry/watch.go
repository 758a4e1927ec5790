package registry

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
)

// classWatch and relatedWatch are the two kinds of watches.
type (
	classWatch   = watch[*inventory.Classes, *inventory.Class]
	relatedWatch = watch[*inventory.Objects, *expression.Object]
)

// collection of all objects of one kind: inventory.Classes, or inventory.Objects. Neither is ever changed.
type collection[S any] interface {
	comparable
	Without(namespace, name string) S
}

// seen is what is kept of an object: its name, the version by which the Reflector goes, and the few fields that matter.
type seen[T any] struct {
	metav1.PartialObjectMetadata
	fields T
}

// kept is what a watch keeps of the objects of a kind.
type kept[S, T any] interface {
	resourceKind
	// read the fields that matter of an object. What is known may be used again.
	read(known S, object any) (T, error)
	// with returns what is known with an object, which replaces the one that there is.
	with(known S, object *seen[T]) S
	// all returns these objects.
	all(objects []*seen[T]) S
}

// watch follows the classes of one kind, or the objects of a RelatedKind. It is fed by a Reflector rather than an informer, so that an
// object is held once, as the few fields that matter, and not a second time as a whole.
type watch[S collection[S], T any] struct {
	cluster.Health
	name string
	kept kept[S, T]
	// publish takes all objects after each change, and the one that was put or removed; nil means that any may have changed.
	publish func(objects S, changed *seen[T])
	stop    context.CancelFunc

	// objects as they were last seen. Only the Reflector uses them.
	objects S
}

// start follows the objects until the watch is stopped. It calls answered when the API server's answer differs from the last one. This and
// publish run on goroutines of its own.
func (w *watch[S, T]) start(ctx context.Context, client *classClient, answered func(error)) {
	// The watch outlives the reconciliation that starts it; stop ends it, or the end of the process.
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // Whoever has the watch stops it.
	cluster.Follow(ctx, client.objects(w.name, w.kept), w, &w.Health, answered)
}

// Read is called by the Reflector, as are Put, Remove and Replace.
func (w *watch[S, T]) Read(object any) (*seen[T], error) {
	if s, ok := object.(*seen[T]); ok {
		return s, nil
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, fmt.Errorf("cannot read an object of %q: %w", w.name, err)
	}
	s := &seen[T]{}
	s.Namespace, s.Name, s.UID, s.ResourceVersion = m.GetNamespace(), m.GetName(), m.GetUID(), m.GetResourceVersion()
	s.fields, err = w.kept.read(w.objects, object)
	return s, err
}

// Put an object that is new or has changed.
func (w *watch[S, T]) Put(object *seen[T]) { w.set(w.kept.with(w.objects, object), object) }

// Remove an object.
func (w *watch[S, T]) Remove(object *seen[T]) {
	w.set(w.objects.Without(object.Namespace, object.Name), object)
}

// Replace all objects.
func (w *watch[S, T]) Replace(objects []*seen[T]) { w.set(w.kept.all(objects), nil) }

// set publishes nothing if nothing that matters has changed.
func (w *watch[S, T]) set(objects S, changed *seen[T]) {
	if objects != w.objects {
		w.objects = objects
		w.publish(objects, changed)
	}
}

// followed is what is known of the objects of one kind.
type followed[S collection[S], T any] struct {
	// watch of the objects; nil while there is none, and err says why.
	watch *watch[S, T]
	err   error
	// since is when the API server first gave the answer in err.
	since time.Time
	// objects in the inventory, nil if they have never been listed. They are those of the previous watch until this one has synced: a
	// changed registration takes none away while the API server does not answer.
	objects S
}

// stop the watch, if there is one.
func (f *followed[S, T]) stop() {
	if f.watch != nil {
		f.watch.stop()
	}
}

// served reports whether the API server does not answer the watch with 404.
func (f *followed[S, T]) served() bool {
	_, err := f.watch.LastError()
	return !apierrors.IsNotFound(err)
}

// sinceOf is since when the API server gives this answer.
func (f *followed[S, T]) sinceOf(why error) time.Time {
	if f.err != nil && f.err.Error() == why.Error() {
		return f.since
	}
	return time.Now()
}
