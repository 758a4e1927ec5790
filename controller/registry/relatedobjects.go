package registry

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
)

// keptObjects are what a watch keeps of a RelatedKind.
type keptObjects struct {
	relatedResource
	served cluster.Resource
}

func newKeptObjects(kind *selector.RelatedKind, served cluster.Resource) keptObjects {
	plural, _, _ := strings.Cut(kind.Resource, ".")
	return keptObjects{relatedResource{kind, served.GroupVersion().WithResource(plural)}, served}
}

// strip keeps what is looked at of an object.
func (k keptObjects) strip(object any) (any, error) { return newRelatedObject(k.kind, object) }

func (k keptObjects) with(known *selector.Objects, object any) (*selector.Objects, error) {
	o, err := newRelatedObject(k.kind, object)
	if err != nil {
		return nil, err
	}
	return known.With(o.Namespace, o.Name, o.fields), nil
}

func (k keptObjects) all(_ *selector.Objects, objects []any) (*selector.Objects, error) {
	all := make(map[types.NamespacedName]*expression.Object, len(objects))
	for _, object := range objects {
		o, err := newRelatedObject(k.kind, object)
		if err != nil {
			return nil, err
		}
		all[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o.fields
	}
	return selector.NewObjects(k.kind, k.served.Namespaced, all), nil
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
