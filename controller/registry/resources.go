package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/openapi"
)

// Resources looks up what the API server serves.
type Resources struct {
	reader   client.Reader // from the cache
	resolver cluster.Resolver
}

// LookUp resolves the resource of classes. It returns ErrNotInstalled only if there is no CRD either.
func (r *Resources) LookUp(ctx context.Context, classKind string, verbs ...string) (cluster.Resource, error) {
	return r.lookUp(ctx, classKind, "", verbs...)
}

func (r *Resources) lookUp(ctx context.Context, name, version string, verbs ...string) (cluster.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, LookUpTimeout)
	defer cancel()
	found, err := r.resolver.Resolve(ctx, name, version, verbs...)
	if !errors.Is(err, cluster.ErrNotInstalled) {
		return found, err
	}
	switch crdErr := r.reader.Get(ctx, client.ObjectKey{Name: name}, cluster.CRD()); {
	case crdErr == nil:
		return cluster.Resource{}, ErrCRDNotServed
	case apierrors.IsNotFound(crdErr):
		return cluster.Resource{}, err
	default:
		return cluster.Resource{}, fmt.Errorf("cannot get the CRD of %q: %w", name, crdErr)
	}
}

// ReasonFor is the reason of a condition for an error of LookUp, or for a fault.
func ReasonFor(err error) string {
	fault := (*inventory.Fault)(nil)
	switch {
	case errors.As(err, &fault):
		return fault.Reason
	case errors.Is(err, cluster.ErrNotInstalled):
		return v1beta1.ReasonNotInstalled
	case errors.Is(err, cluster.ErrUnsuitable):
		return v1beta1.ReasonUnsuitable
	case errors.Is(err, cluster.ErrVersionNotServed):
		return v1beta1.ReasonVersionNotServed
	}
	return v1beta1.ReasonNotSynced
}

// schema returns the schema of a resource in a version.
func (r *Resources) schema(ctx context.Context, name string, found cluster.Resource) (*openapi.Schema, error) {
	ctx, cancel := context.WithTimeout(ctx, LookUpTimeout)
	defer cancel()
	crd, err := r.resolver.CRD(ctx, name)
	if err == nil {
		return openapi.OfCRD(crd, found.Version)
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cannot read the CRD of %q: %w", name, err)
	}
	document, err := r.resolver.OpenAPI(ctx, found.GroupVersion())
	if apierrors.IsNotFound(err) {
		return nil, openapi.ErrNoSchema
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema of %q: %w", name, err)
	}
	return openapi.OfDocument(document, found.GroupVersionKind)
}

// Followed is a resource that is followed while the API server serves it.
type Followed struct {
	// Withdraw what is known, because the API server does not serve the resource.
	Withdraw func(why error)
	// Unanswered means that the API server did not say what it serves. What is known stays.
	Unanswered func(why error)
	// Follow the resource that was found. It is false if the API server answers the watch with 404: it lists the resource, so one of the
	// two is about to change.
	Follow func() (served bool, err error)
}

// LookedUp goes on after a look-up of the resource, and returns when to look it up again.
func (f Followed) LookedUp(err error) (ctrl.Result, error) {
	switch {
	case NotInstalledOrUnsuitable(err):
		f.Withdraw(err)
		return ctrl.Result{RequeueAfter: RetryAfter}, nil
	case errors.Is(err, ErrCRDNotServed):
		f.Unanswered(err)
		return ctrl.Result{RequeueAfter: RetryCRDAfter}, nil
	case err != nil:
		f.Unanswered(err)
		return ctrl.Result{}, err
	}
	if served, err := f.Follow(); err != nil || served {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: RetryCRDAfter}, nil
}
