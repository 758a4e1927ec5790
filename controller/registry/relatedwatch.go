package registry

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
)

// relatedWatch follows the objects of a RelatedKind, as watch follows classes: each is held
// once, as the fields that expressions look at.
type relatedWatch struct {
	relatedResource
	served  cluster.Resource
	publish func(*selector.Objects)
	stop    context.CancelFunc
	cluster.Health

	// objects as they were last seen. Only the Reflector uses them.
	objects *selector.Objects
}

// startRelatedWatch follows the objects until it is stopped. It calls publish and answered
// as startWatch does.
func startRelatedWatch(
	ctx context.Context, client *classClient, kind *selector.RelatedKind, served cluster.Resource,
	publish func(*selector.Objects), answered func(error),
) *relatedWatch {
	ctx, stop := context.WithCancel(ctx)
	plural, _, _ := strings.Cut(kind.Resource, ".")
	w := &relatedWatch{
		relatedResource: relatedResource{kind, served.GroupVersion().WithResource(plural)},
		served:          served, publish: publish, stop: stop, objects: selector.NewObjects(kind, served.Namespaced, nil),
	}
	client.objects(kind.Key().String(), w).Follow(ctx, w, &w.Health, answered)
	return w
}

// set publishes the objects if they have changed.
func (w *relatedWatch) set(objects *selector.Objects) {
	if objects != w.objects {
		w.objects = objects
		w.publish(objects)
	}
}

// Add is called by the Reflector, as are Update, Delete, Replace and Resync.
func (w *relatedWatch) Add(object any) error {
	o, err := newRelatedObject(w.kind, object)
	if err != nil {
		return err
	}
	w.set(w.objects.With(o.Namespace, o.Name, o.fields))
	return nil
}

// Update an object.
func (w *relatedWatch) Update(object any) error { return w.Add(object) }

// Delete an object.
func (w *relatedWatch) Delete(object any) error {
	m, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("cannot read an object of %q: %w", w.kind.Key(), err)
	}
	w.set(w.objects.Without(m.GetNamespace(), m.GetName()))
	return nil
}

// Replace all objects.
func (w *relatedWatch) Replace(objects []any, _ string) error {
	all := make(map[types.NamespacedName]*expression.Object, len(objects))
	for _, object := range objects {
		o, err := newRelatedObject(w.kind, object)
		if err != nil {
			return err
		}
		all[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o.fields
	}
	w.set(selector.NewObjects(w.kind, w.served.Namespaced, all))
	return nil
}

// Resync does nothing.
func (w *relatedWatch) Resync() error { return nil }

// Transformer keeps what is looked at of an object.
func (w *relatedWatch) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return newRelatedObject(w.kind, object) }
}

// relatedObject is what is kept of an object: its name, the version by which the Reflector
// goes, and the fields at which expressions look.
type relatedObject struct {
	metav1.PartialObjectMetadata
	fields *expression.Object
}

func newRelatedObject(kind *selector.RelatedKind, object any) (*relatedObject, error) {
	if o, ok := object.(*relatedObject); ok {
		return o, nil
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, fmt.Errorf("cannot read an object of %q: %w", kind.Key(), err)
	}
	o := &relatedObject{}
	o.Namespace, o.Name, o.ResourceVersion = m.GetNamespace(), m.GetName(), m.GetResourceVersion()
	content := map[string]any{}
	switch object := object.(type) {
	case *unstructured.Unstructured:
		content = object.Object
	case *metav1.PartialObjectMetadata:
		object.ManagedFields = nil // Many, and nobody looks at them.
		if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object); err != nil {
			return nil, fmt.Errorf("cannot read the metadata of an object of %q: %w", kind.Key(), err)
		}
	}
	o.fields = kind.Fields.Project(content)
	return o, nil
}
