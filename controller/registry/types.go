package registry

import (
	"context"
	"errors"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/rules"
)

// checkTypesTimeout limits the reading of all schemas that the expressions of one registration look at. What is not read by
// then is not checked.
const checkTypesTimeout = 10 * time.Second

// Types are what the schemas say of the expressions of a registration.
type Types struct {
	// Mistyped are the expressions that fail by the schemas of what they look at.
	Mistyped []rules.Invalid
	// Read are the resources whose schemas were asked for.
	Read map[string]bool
	// Err is why a schema could not be read, so that more may be mistyped. A resource that is not served has none.
	Err error
}

// TypesOfClaims checks the expressions of a ClaimKind.
func (r *Registration) TypesOfClaims(ctx context.Context, k *v1beta1.ClaimKind) (types Types) {
	classKinds, err := classKindsServing(ctx, r.reader, k)
	if err != nil || !k.Spec.HasExpressions() {
		return Types{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTypesTimeout)
	defer cancel()
	types.Mistyped = schemas(ctx, r, &types).MistypedOfClaims(ctx, k, classKinds)
	return types
}

// TypesOfClasses checks those of a ClassKind.
func (r *Registration) TypesOfClasses(ctx context.Context, k *v1beta1.ClassKind) (types Types) {
	claimKinds, err := claimKindsServed(ctx, r.reader, k)
	if err != nil || !k.Spec.HasExpressions() {
		return Types{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTypesTimeout)
	defer cancel()
	types.Mistyped = schemas(ctx, r, &types).MistypedOfClasses(ctx, k, claimKinds)
	return types
}

// schemas of one check, which notes in types what it reads. The schemas of a check are in memory together, so it reads
// MaxCheckedSchemas at most: others are not known.
func schemas(ctx context.Context, r *Registration, types *Types) openapi.Source {
	types.Read = map[string]bool{}
	of := func(name, version string) *openapi.Schema {
		if types.Read[name] = true; len(types.Read) > v1beta1.MaxCheckedSchemas {
			return nil
		}
		found, err := r.lookUp(ctx, name, version)
		if err == nil {
			var s *openapi.Schema
			if s, err = r.schema(ctx, name, found); err == nil {
				return s
			}
		}
		if !NotInstalledOrUnsuitable(err) && !errors.Is(err, openapi.ErrNoSchema) {
			types.Err = err
		}
		return nil
	}
	return openapi.Source{
		Of: of, OfClaims: func(k *v1beta1.ClaimKind) *openapi.Schema { return of(k.Resource(), versionOf(ctx, r, k)) },
	}
}
