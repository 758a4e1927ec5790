package registry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// What is read of a claim depends on the expressions of the ClassKinds that name its
// ClaimKind, and what is held of a class on those of the ClaimKinds that its ClassKind names.
// So a change of one is a change of the other.

// registeredClaimKind is a ClaimKind, and what it was compiled to.
type registeredClaimKind struct {
	object *v1alpha1.ClaimKind
	kind   *selector.ClaimKind
}

// register a new or changed claim kind. One that is the same stays, with what its strategy
// remembers.
func (r *Registration) register(k *v1alpha1.ClaimKind, kind *selector.ClaimKind) {
	r.RelatedKinds.mu.Lock()
	old := r.claimKinds[k.Name]
	r.RelatedKinds.mu.Unlock()
	if old.kind != nil && old.kind.Same(kind) && sameFault(old.object, k) {
		return
	}
	r.Inventory.SetClaimKind(kind)
	r.needRelated(k.Name, registeredClaimKind{k, kind})
}

// unregister a claim kind that is gone.
func (r *Registration) unregister(name string) {
	r.Inventory.DeleteClaimKind(name)
	r.needRelated(name, registeredClaimKind{})
}

// ClassKindsNaming are the ClassKinds that name a ClaimKind.
func (r *Registration) ClassKindsNaming(ctx context.Context, claimKind string) ([]*v1alpha1.ClassKind, error) {
	all := &v1alpha1.ClassKindList{}
	if err := r.reader.List(ctx, all); err != nil {
		return nil, fmt.Errorf("cannot list class kinds: %w", err)
	}
	return selector.Naming(claimKind, all.Items), nil
}

// claimKindsNamedBy are the ClaimKinds that a ClassKind names, and that are registered.
func claimKindsNamedBy(ctx context.Context, cache client.Reader, k *v1alpha1.ClassKind) (named []*v1alpha1.ClaimKind, err error) {
	for _, name := range k.Spec.ClaimKinds {
		claimKind := &v1alpha1.ClaimKind{}
		switch err := cache.Get(ctx, client.ObjectKey{Name: name}, claimKind); {
		case err == nil:
			named = append(named, claimKind)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("cannot get claim kind %q: %w", name, err)
		}
	}
	return named, nil
}

// ClaimKindsLookedAt requests the ClaimKinds whose claims a ClassKind may look at.
func ClaimKindsLookedAt(_ context.Context, classKind client.Object) (requests []ctrl.Request) {
	if k, ok := classKind.(*v1alpha1.ClassKind); ok && len(k.Spec.Fits) > 0 {
		for _, name := range k.Spec.ClaimKinds {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
		}
	}
	return requests
}

// classKindsLookedAt requests the ClassKinds whose classes a ClaimKind may look at.
func (r *Registration) classKindsLookedAt(ctx context.Context, claimKind client.Object) (requests []ctrl.Request) {
	k, ok := claimKind.(*v1alpha1.ClaimKind)
	if !ok || len(k.Spec.Fits) == 0 && k.Spec.Partition == nil && k.Spec.Score == "" {
		return nil
	}
	naming, _ := r.ClassKindsNaming(ctx, k.Name) // From the cache; what fails here fails in the reconciliation, too.
	for _, k := range naming {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(k)})
	}
	return requests
}
