package registry

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// keptObjects are what a watch keeps of a RelatedKind.
type keptObjects struct {
	relatedResource
	served cluster.Resource
}

func newKeptObjects(kind *rules.Kind, served cluster.Resource) keptObjects {
	plural, _, _ := strings.Cut(kind.Resource, ".")
	return keptObjects{relatedResource{kind, served.GroupVersion().WithResource(plural)}, served}
}

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
		object.ManagedFields = nil // Many, and nobody looks at them.
		if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object); err != nil {
			return nil, fmt.Errorf("cannot read the metadata of an object of %q: %w", kind.Key(), err)
		}
	}
	return kind.Fields.Project(fields), nil
}

// relatedResource is a RelatedKind as the API server serves it.
type relatedResource struct {
	kind *rules.Kind
	gvr  schema.GroupVersionResource
}

// Resource of the objects.
func (r relatedResource) Resource() schema.GroupVersionResource { return r.gvr }

// MetadataOnly says that nothing but metadata is read of the objects.
func (r relatedResource) MetadataOnly() bool { return r.kind.MetadataOnly() }

// RelatedObject asks the API server for an object that a claim of a namespace names, nil if there is none. The object of a kind that is not
// namespaced has no namespace.
func (l *LiveReads) RelatedObject(
	ctx context.Context, claimNamespace string, kind *rules.Kind, namespace, name string,
) (*expression.Object, error) {
	watch, watched := l.related.watchOf(kind.Key())
	if watch == nil || !validName(name) || watched.served.Namespaced != validName(namespace) {
		return nil, nil
	}
	key := readKey{related: relatedResource{kind, watched.gvr}, namespaces: namespace, name: name}
	asked, err := l.reads.ask(claimNamespace, nil, nil, key) //nolint:contextcheck // A shared read has no claim's context.
	if err != nil {
		return nil, err
	}
	defer l.reads.leave(claimNamespace, asked...)
	if _, err = l.reads.wait(ctx, asked[0]); err == nil {
		return asked[0].object, nil
	}
	if _, watchErr := watch.LastError(); apierrors.IsForbidden(err) && apierrors.IsForbidden(watchErr) {
		return nil, nil // The last known objects are all that there is.
	}
	return nil, err
}

// watchOf a related kind, nil if there is none: the API server does not serve it.
func (r *RelatedKinds) watchOf(key rules.Key) (*relatedWatch, keptObjects) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.related[key]; k != nil {
		return k.watch, k.watched
	}
	return nil, keptObjects{}
}

// validName reports whether an object can have this name: authors of claims make them up.
func validName(name string) bool {
	return name != "" && len(name) <= validation.DNS1123SubdomainMaxLength && len(content.IsPathSegmentName(name)) == 0
}

// readRelated reads the object of a shared read, nil if there is none.
func (l *LiveReads) readRelated(ctx context.Context, key readKey) (*expression.Object, error) {
	object, err := l.client.get(ctx, key.related, key.namespaces, key.name)
	if apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot %v: %w", key, err)
	}
	return project(key.related.kind, object)
}
