package controller

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// ClassKind is one as this replica knows it, nil if it is not registered or its
// resource not installed.
func (r *Registration) ClassKind(ctx context.Context, name string) (*selector.ClassKind, error) {
	k := &v1alpha1.ClassKind{}
	err := r.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	if apierrors.IsNotFound(err) { // Either it was deleted, or we are about to hear of it.
		if err = r.api.Get(ctx, client.ObjectKey{Name: name}, k); apierrors.IsNotFound(err) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get class kind %q: %w", name, err)
	}
	if watched := r.watched(name); watched != nil && watched.Revision.UID == k.UID {
		return selector.NewClassKind(k, watched.GroupVersionKind, watched.Namespaced), nil
	}
	found, err := r.lookUp(ctx, name, "list")
	if errors.Is(err, errNotInstalled) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look up class kind %q: %w", name, err)
	}
	return selector.NewClassKind(k, found.GroupVersionKind, found.namespaced), nil
}

// watched is the kind as it is watched, nil if it is not.
func (r *Registration) watched(classKind string) *selector.ClassKind {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.kinds[classKind]; k != nil && k.watch != nil {
		return k.watch.kind
	}
	return nil
}

// Class is one as the API server has it now, nil if there is none. That the API
// server does not serve the resource, in this version and scope, is no word
// about the class: it begins and ends to serve each of them at its own time.
func (r *Registration) Class(ctx context.Context, kind *selector.ClassKind, namespace, name string) (metav1.Object, *selector.Class, error) {
	object, err := r.classes.get(ctx, kind, namespace, name)
	if apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot get the class %q of %q: %w", name, kind.Name, err)
	}
	c, err := class(kind, object)
	return object, c, err
}
