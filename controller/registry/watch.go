package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
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

// watch follows the classes of one kind, or the objects of a related kind. It is fed by a Reflector rather than an informer, so that an
// object is held once, as the few fields that matter, and not a second time as a whole.
type watch[S collection[S], T any] struct {
	cluster.Health
	name string
	kept kept[S, T]
	// publish takes all objects after each change, and the one that was put or removed; nil means that any may have changed.
	publish func(objects S, changed *seen[T])
	stop    context.CancelFunc

	objects S // as they were last seen. Only the Reflector uses them.
}

// start follows the objects until the watch is stopped. It calls answered when the API server's answer differs, on goroutines of its own.
func (w *watch[S, T]) start(ctx context.Context, client *classClient, answered func(error)) {
	// The watch outlives the reconciliation that starts it; stop ends it, or the end of the process.
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // The owner of the watch stops it.
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

// keptClasses are what a watch keeps of a class kind.
type keptClasses struct {
	*inventory.ClassKind
	stored func(*inventory.Class, types.UID) // as in classClient
}

func (k keptClasses) read(known *inventory.Classes, object any) (*inventory.Class, error) {
	return class(known, k.ClassKind, object)
}

func (k keptClasses) with(known *inventory.Classes, object *seen[*inventory.Class]) *inventory.Classes {
	k.report(object)
	return known.With(object.fields)
}

func (k keptClasses) all(objects []*seen[*inventory.Class]) *inventory.Classes {
	all := make([]*inventory.Class, len(objects))
	for i, object := range objects {
		k.report(object)
		all[i] = object.fields
	}
	return inventory.NewClasses(k.ClassKind, all)
}

// report a default class that was stored.
func (k keptClasses) report(object *seen[*inventory.Class]) {
	if object.fields.Default && k.stored != nil {
		k.stored(object.fields, object.UID)
	}
}

// class reads a class, unless it is known. Known may be nil.
func class(known *inventory.Classes, kind *inventory.ClassKind, object any) (*inventory.Class, error) {
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, fmt.Errorf("cannot read a class of %q: %w", kind.Name, err)
	}
	var content map[string]any
	if u, ok := object.(*unstructured.Unstructured); ok {
		content = u.Object
	}
	return known.Read(kind, m, content), nil
}

// keptObjects are what a watch keeps of a related kind, as the API server serves it.
type keptObjects struct {
	kind   *rules.Kind
	served cluster.Resource
}

// Resource of the objects.
func (k keptObjects) Resource() schema.GroupVersionResource {
	return k.served.GroupVersion().WithResource(schema.ParseGroupResource(k.kind.Resource).Resource)
}

// MetadataOnly reports whether nothing but metadata is read of the objects.
func (k keptObjects) MetadataOnly() bool { return k.kind.MetadataOnly() }

func (k keptObjects) read(_ *inventory.Objects, object any) (*expression.Object, error) {
	return project(k.kind, object)
}

func (k keptObjects) with(known *inventory.Objects, object *seen[*expression.Object]) *inventory.Objects {
	return known.With(object.Namespace, object.Name, object.fields)
}

func (k keptObjects) all(objects []*seen[*expression.Object]) *inventory.Objects {
	all := make(map[types.NamespacedName]*expression.Object, len(objects))
	for _, o := range objects {
		all[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o.fields
	}
	return inventory.NewObjects(k.kind, k.served.Namespaced, all)
}

// project keeps the fields at which expressions look.
func project(kind *rules.Kind, object any) (_ *expression.Object, err error) {
	fields := map[string]any{}
	switch object := object.(type) {
	case *unstructured.Unstructured:
		fields = object.Object
	case *metav1.PartialObjectMetadata:
		object.ManagedFields = nil // Many, and unread.
		if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object); err != nil {
			return nil, fmt.Errorf("cannot read the metadata of an object of %q: %w", kind.Key(), err)
		}
	}
	return kind.Fields.Project(fields), nil
}

// followed is what is known of the objects of one kind.
type followed[S collection[S], T any] struct {
	// watch of the objects; nil while there is none, and err says why.
	watch *watch[S, T]
	err   error
	since time.Time // when the API server first gave the answer in err
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

// State of a class kind, or of the objects that the claims of a kind name.
type State struct {
	// Reason of the condition, and its message; empty if claims name no objects.
	Reason, Message string
	// Known reports whether claims can be bound: by what is known now, or was last known.
	Known bool
	// Classes that are offered, nil if there are none.
	Classes *inventory.Classes
	// Revision of the watched class kind.
	Revision inventory.Revision
	// Refused reports whether the API server said no, which may yet change. Since is when that began.
	Refused bool
	Since   time.Time
	// confirmed is when the API server last said how the classes are; zero means never.
	confirmed time.Time
}

// stateMessages are the messages of a State. whyRefused follows all but the first.
type stateMessages struct{ served, stale, notPermitted, notSynced, permit string }

// state of what is watched. current reports whether the known objects are those of this watch.
func (f *followed[S, T]) state(known, current bool, messages stateMessages) State {
	since, err := f.watch.LastError()
	why := whyRefused(err, messages.permit)
	s := State{Known: known, Since: since}
	switch {
	case known && current && err == nil:
		s.Reason, s.Message = v1beta1.ReasonServed, messages.served
	case known:
		s.Reason, s.Message = v1beta1.ReasonStale, messages.stale+why
	case apierrors.IsForbidden(err):
		s.Reason, s.Message, s.Refused = v1beta1.ReasonNotPermitted, messages.notPermitted+why, true
	default:
		s.Reason, s.Message = v1beta1.ReasonNotSynced, messages.notSynced+why
	}
	return s
}

// notWatched is the state of what is not watched.
func notWatched(why error, since time.Time) State {
	return State{Reason: ReasonFor(why), Message: why.Error(), Refused: errors.Is(why, ErrCRDNotServed), Since: since}
}

// whyRefused is why the API server does not serve objects, with what permits it.
func whyRefused(err error, permit string) string {
	switch {
	case err == nil:
		return "it has not answered yet"
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%v: %s", err, permit)
	}
	return err.Error()
}
