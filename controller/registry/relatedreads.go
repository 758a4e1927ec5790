package registry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
)

// relatedResource is a RelatedKind as the API server serves it.
type relatedResource struct {
	kind *selector.RelatedKind
	gvr  schema.GroupVersionResource
}

// Resource of the objects.
func (r relatedResource) Resource() schema.GroupVersionResource { return r.gvr }

// MetadataOnly says that nothing but metadata is read of the objects.
func (r relatedResource) MetadataOnly() bool { return r.kind.MetadataOnly() }

// RelatedObject asks the API server for an object that a claim of a namespace names, nil if
// there is none. The object of a kind that is not namespaced has no namespace.
func (l *LiveReads) RelatedObject(
	ctx context.Context, claimNamespace string, kind *selector.RelatedKind, namespace, name string,
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
func (r *RelatedKinds) watchOf(key selector.RelatedKey) (*relatedWatch, keptObjects) {
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
