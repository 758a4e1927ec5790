package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// ClassKind returns a class kind as this replica knows it, nil if it is not registered or its resource is not installed.
func (l *LiveReads) ClassKind(ctx context.Context, name string) (*inventory.ClassKind, error) {
	k := &v1beta1.ClassKind{}
	err := l.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	if apierrors.IsNotFound(err) { // It was deleted, or the cache does not have it yet.
		if err = l.get(ctx, name, k); apierrors.IsNotFound(err) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get class kind %q: %w", name, truncate.Error(err))
	}
	claimKinds, err := claimKindsServed(ctx, l.reader, k)
	if err != nil {
		return nil, err
	}
	watched := l.classKinds.Watched(name)
	if watched != nil && watched.Revision == inventory.RevisionOf(k) && slices.Equal(watched.ClaimKinds, rules.ServedNames(k, claimKinds)) {
		return watched, nil // To compile expressions takes milliseconds.
	}
	if watched != nil && watched.Revision.UID == k.UID {
		return inventory.NewClassKind(k, watched.GroupVersionKind, watched.Namespaced, claimKinds...), nil
	}
	done, err := l.getInTurn(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot look up class kind %q: %w", name, err)
	}
	found, err := l.resources.LookUp(ctx, name, "list")
	done()
	if errors.Is(err, cluster.ErrNotInstalled) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look up class kind %q: %w", name, err)
	}
	return inventory.NewClassKind(k, found.GroupVersionKind, found.Namespaced, claimKinds...), nil
}

// Namespace asks the API server whether a namespace exists now.
func (l *LiveReads) Namespace(ctx context.Context, name string) (bool, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	err := l.get(ctx, name, namespace)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot get namespace %q: %w", name, truncate.Error(err))
	}
	return true, nil
}

// get reads an object that a review names, from the API server itself.
func (l *LiveReads) get(ctx context.Context, name string, object client.Object) error {
	done, err := l.getInTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return l.api.Get(ctx, client.ObjectKey{Name: name}, object)
}

// newReadLimiter limits the reads that reviews cause, and those of one key to a part. Anybody who reaches our port can cause them, with
// made-up names.
func newReadLimiter(part int) *fair.Limiter {
	return fair.NewLimiter(fair.Limits{
		Running: v1beta1.MaxRegistrationReads, RunningOfKey: max(v1beta1.MaxRegistrationReads/part, 1),
		Waiting: v1beta1.MaxWaitingRegistrationReads, WaitingOfKey: max(v1beta1.MaxWaitingRegistrationReads/part, 1),
	})
}

// getInTurn waits for a turn, unless too many wait already. done ends the turn.
func (l *LiveReads) getInTurn(ctx context.Context) (done func(), err error) {
	if done, err = l.readLimiter.Take(ctx, ""); err != nil {
		return nil, fmt.Errorf("other reads of the API server come first: %w", err)
	}
	return done, nil
}

// Watched returns a class kind as its classes are watched, nil if they are not.
func (c *ClassKinds) Watched(classKind string) *inventory.ClassKind {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.kinds[classKind]; k != nil {
		return k.kind
	}
	return nil
}

// Class returns a class as the API server has it now, nil if there is none. It fails if the API server does not serve the resource in this
// version and scope: the class may still exist, because each of them starts and stops being served at its own time.
func (l *LiveReads) Class(ctx context.Context, kind *inventory.ClassKind, namespace, name string) (metav1.Object, *inventory.Class, error) {
	object, err := l.client.get(ctx, kind, namespace, name)
	if apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot get the class %q of %q: %w", name, kind.Name, err)
	}
	c, err := class(nil, kind, object)
	return object, c, err
}

// NamedClass does the same for a claim of a namespace that names the class. Namespaces take turns, so that nobody's made-up names keep
// others waiting.
func (l *LiveReads) NamedClass(
	ctx context.Context, claimNamespace string, kind *inventory.ClassKind, namespace, name string,
) (*inventory.Class, error) {
	isName := len(name) <= v1beta1.MaxNameBytes && len(apimachineryvalidation.NameIsDNSSubdomain(name, false)) == 0
	if !isName || namespace != "" && len(apimachineryvalidation.ValidateNamespaceName(namespace, false)) > 0 {
		return nil, nil // No class has it, and it goes into a URL.
	}
	done, err := l.namedLimiter.Take(ctx, claimNamespace)
	if err != nil {
		return nil, fmt.Errorf("other reads of the API server come first: %w", err)
	}
	defer done()
	_, c, err := l.Class(ctx, kind, namespace, name)
	return c, err
}

// OnStored sets the function that is called with each default class that a watch shows, and its uid. Call it before the start.
func (c *ClassKinds) OnStored(f func(*inventory.Class, types.UID)) { c.client.stored = f }
