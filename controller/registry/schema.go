package registry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// Schema returns the schema of a kind of claim, in the version for which the paths of its
// registration are written.
func (r *Registration) Schema(ctx context.Context, k *v1alpha1.ClaimKind) (*selector.Schema, error) {
	ctx, cancel := context.WithTimeout(ctx, LookUpTimeout)
	defer cancel()
	found, err := r.LookUpClaims(ctx, k, "create")
	if err != nil {
		return nil, err
	}
	crd, err := r.resolver.CRD(ctx, k.Resource())
	if err == nil {
		return selector.SchemaOfCRD(crd, found.Version)
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cannot read the CRD of %q: %w", k.Resource(), err)
	}
	document, err := r.resolver.OpenAPI(ctx, found.GroupVersion())
	if apierrors.IsNotFound(err) {
		return nil, selector.ErrNoSchema
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema of %q: %w", k.Resource(), err)
	}
	return selector.SchemaOfOpenAPI(document, found.GroupVersionKind)
}
