package registry

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/rules"
)

// checkTypesTimeout limits the reading of all schemas that the expressions of one registration look at. What is not read by then is not
// checked.
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

// Types checks the expressions of a registration. The schemas of a check are in memory together, so it reads MaxCheckedSchemas at most:
// others are not known.
func (r *Registration) Types(ctx context.Context, registration client.Object) Types {
	ctx, cancel := context.WithTimeout(ctx, checkTypesTimeout)
	defer cancel()
	types := Types{Read: map[string]bool{}}
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
	schemas := openapi.Source{
		Of: of, OfClaims: func(k *v1beta1.ClaimKind) *openapi.Schema { return of(k.Resource(), versionOf(ctx, r, k)) },
	}
	claimKinds, classKinds, err := List(ctx, r.reader)
	if err != nil {
		return Types{Err: err}
	}
	switch k := registration.(type) {
	case *v1beta1.ClaimKind:
		if k.Spec.HasExpressions() {
			types.Mistyped = schemas.MistypedOfClaims(ctx, k, rules.Serving(k, classKinds))
		}
	case *v1beta1.ClassKind:
		if k.Spec.HasExpressions() {
			types.Mistyped = schemas.MistypedOfClasses(ctx, k, rules.Served(k, claimKinds))
		}
	}
	return types
}
