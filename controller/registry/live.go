package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// LiveReads asks the API server itself what a review needs to know as it is now.
type LiveReads struct {
	api         client.Reader // from the API server itself
	resources   *Resources
	classKinds  *ClassKinds
	related     *RelatedKinds
	client      *classClient
	reads       *reads
	readLimiter *fair.Limiter // for registrations and namespaces, all of one key
	// namedLimiter is for classes that claims name, by the namespace of the claim.
	namedLimiter *fair.Limiter
	// deleted has the names of the claim kinds that this replica saw deleted.
	deleted sync.Map
}

// RelatedObject asks the API server for an object that a claim of a namespace names, nil if there is none. Its own namespace may be empty.
func (l *LiveReads) RelatedObject(
	ctx context.Context, claimNamespace string, kind *rules.Kind, namespace, name string,
) (*expression.Object, error) {
	watch, served := l.related.watchOf(kind.Key())
	if watch == nil || !validName(name) || served.Namespaced != validName(namespace) {
		return nil, nil
	}
	read, err := l.reads.ask(claimNamespace, readKey{keptObjects{kind, served}, namespace, name}) //nolint:contextcheck // A shared read has none.
	if err != nil {
		return nil, err
	}
	defer l.reads.leave(claimNamespace, read)
	o, err := l.reads.wait(ctx, read)
	if err == nil {
		return kind.Valid(o, time.Now()), nil
	}
	if _, watchErr := watch.LastError(); apierrors.IsForbidden(err) && apierrors.IsForbidden(watchErr) {
		return nil, nil // The last known objects are all that there is.
	}
	return nil, err
}

// validName reports whether an object can have this name, which goes into a URL: authors of claims make them up.
func validName(name string) bool {
	return name != "" && len(name) <= validation.DNS1123SubdomainMaxLength && len(content.IsPathSegmentName(name)) == 0
}

// readRelated reads the object of a shared read, nil if there is none.
func (l *LiveReads) readRelated(ctx context.Context, key readKey) (*expression.Object, error) {
	object, err := l.client.get(ctx, key.keptObjects, key.namespace, key.name)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot %v: %w", key, err)
	}
	return project(key.kind, object)
}

// absent reports whether the API server serves the resource, and has no object of the name.
func absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// Class returns a class as the API server has it now, nil if there is none. It fails if the API server does not serve the resource in this
// version and scope: the class may still exist, because each of them starts and stops being served at its own time.
func (l *LiveReads) Class(ctx context.Context, kind *inventory.ClassKind, namespace, name string) (metav1.Object, *inventory.Class, error) {
	object, err := l.client.get(ctx, kind, namespace, name)
	if absent(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot get the class %q of %q: %w", name, kind.Name, err)
	}
	c, err := class(nil, kind, object)
	return object, c, err
}

// NamedClass does the same for a claim that names the class. Namespaces take turns: made-up names of one keep no other waiting.
func (l *LiveReads) NamedClass(
	ctx context.Context, claimNamespace string, kind *inventory.ClassKind, namespace, name string,
) (*inventory.Class, error) {
	if !validName(name) || namespace != "" && !validName(namespace) {
		return nil, nil
	}
	done, err := inTurn(ctx, l.namedLimiter, claimNamespace)
	if err != nil {
		return nil, err
	}
	defer done()
	_, c, err := l.Class(ctx, kind, namespace, name)
	return c, err
}

// ClaimKind asks the API server itself for a ClaimKind, nil if there is none. An uninstallation deletes the registrations, our rights, our
// account, and last the entries by which we are called. A ClaimKind that we saw deleted, and may no longer read, is therefore gone.
func (l *LiveReads) ClaimKind(ctx context.Context, claimKind string) (*v1beta1.ClaimKind, error) {
	k := &v1beta1.ClaimKind{}
	err := l.get(ctx, claimKind, k)
	_, deleted := l.deleted.Load(claimKind)
	if apierrors.IsNotFound(err) || deleted && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get claim kind %q: %w", claimKind, truncate.Error(err))
	}
	return k, nil
}

// ClassKind returns a class kind as this replica knows it, nil if it is not registered or its resource is not installed.
func (l *LiveReads) ClassKind(ctx context.Context, name string) (*inventory.ClassKind, error) {
	k := &v1beta1.ClassKind{}
	err := l.resources.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	if apierrors.IsNotFound(err) { // It was deleted, or the cache does not have it yet.
		if err = l.get(ctx, name, k); apierrors.IsNotFound(err) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get class kind %q: %w", name, truncate.Error(err))
	}
	claimKinds, err := claimKindsServed(ctx, l.resources.reader, k)
	if err != nil {
		return nil, err
	}
	watched := l.classKinds.Watched(name)
	if watched != nil && watched.Revision == inventory.RevisionOf(k) && slices.Equal(watched.ClaimKinds, rules.ServedNames(k, claimKinds)) {
		return watched, nil // To compile expressions takes milliseconds.
	}
	var found cluster.Resource
	done, err := inTurn(ctx, l.readLimiter, "")
	if err == nil {
		found, err = l.resources.LookUp(ctx, name, "list")
		done()
	}
	switch {
	case errors.Is(err, cluster.ErrNotInstalled):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot look up class kind %q: %w", name, err)
	}
	return inventory.NewClassKind(k, found.GroupVersionKind, found.Namespaced, claimKinds...), nil
}

// Namespace asks the API server whether a namespace exists now.
func (l *LiveReads) Namespace(ctx context.Context, name string) (bool, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	err := l.get(ctx, name, namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("cannot get namespace %q: %w", name, truncate.Error(err))
	}
	return err == nil, nil
}

// get reads an object that a review names, from the API server itself.
func (l *LiveReads) get(ctx context.Context, name string, object client.Object) error {
	done, err := inTurn(ctx, l.readLimiter, "")
	if err != nil {
		return err
	}
	defer done()
	return l.api.Get(ctx, client.ObjectKey{Name: name}, object)
}

// inTurn waits for a turn, unless too many wait already. done ends the turn.
func inTurn(ctx context.Context, limiter *fair.Limiter, key string) (done func(), err error) {
	if done, err = limiter.Take(ctx, key); err != nil {
		return nil, fmt.Errorf("other reads of the API server come first: %w", err)
	}
	return done, nil
}
