package registry

import (
	"fmt"
	"strings"

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

func (k keptObjects) read(_ *selector.Objects, object any) (*expression.Object, error) {
	return project(k.kind, object)
}

func (k keptObjects) with(known *selector.Objects, object *seen[*expression.Object]) *selector.Objects {
	return known.With(object.Namespace, object.Name, object.fields)
}

func (k keptObjects) all(objects []*seen[*expression.Object]) *selector.Objects {
	all := make(map[types.NamespacedName]*expression.Object, len(objects))
	for _, o := range objects {
		all[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o.fields
	}
	return selector.NewObjects(k.kind, k.served.Namespaced, all)
}

// project keeps the fields at which expressions look.
func project(kind *selector.RelatedKind, object any) (_ *expression.Object, err error) {
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
	return kind.Fields.Project(content), nil
}
