package registry

import (
	"context"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/rules"
)

// checkTypesTimeout limits the reading of all schemas that the expressions of one registration look at. What is not read by
// then is not checked.
const checkTypesTimeout = 10 * time.Second

// MistypedOfClaims are the expressions of a ClaimKind that fail by the schemas of what they look at.
func (r *Registration) MistypedOfClaims(ctx context.Context, k *v1beta1.ClaimKind) ([]rules.Invalid, error) {
	classKinds, err := classKindsServing(ctx, r.reader, k)
	if err != nil || !k.Spec.HasExpressions() {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTypesTimeout)
	defer cancel()
	return schemas(ctx, r).MistypedOfClaims(k, classKinds), nil
}

// MistypedOfClasses are those of a ClassKind.
func (r *Registration) MistypedOfClasses(ctx context.Context, k *v1beta1.ClassKind) ([]rules.Invalid, error) {
	claimKinds, err := claimKindsServed(ctx, r.reader, k)
	if err != nil || !k.Spec.HasExpressions() {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTypesTimeout)
	defer cancel()
	return schemas(ctx, r).MistypedOfClasses(k, claimKinds), nil
}

func schemas(ctx context.Context, r *Registration) openapi.Source {
	of := func(name, version string) *openapi.Schema {
		found, err := r.lookUp(ctx, name, version)
		if err != nil {
			return nil
		}
		if s, err := r.schema(ctx, name, found); err == nil {
			return s
		}
		return nil
	}
	return openapi.Source{
		Of: of, OfClaims: func(k *v1beta1.ClaimKind) *openapi.Schema { return of(k.Resource(), versionOf(ctx, r, k)) },
	}
}
