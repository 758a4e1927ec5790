package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/openapi"
)

// RecheckSchemas is how often a schema is read again: one that is not a CRD's changes without an event.
const RecheckSchemas = 5 * time.Minute

// Paths are what the schema of a kind's claims says of its registration.
type Paths struct {
	Check selector.PathsCheck
	// Version of the claims for which the paths are written, and the last of these that was served.
	Version, served string
	// Err is why the schema cannot be read, nil if it can. While the API server does not answer, the check stays: where it removes the
	// reference, only another schema mends that.
	Err error
}

// ComparePaths of a registration, as it is compiled, with the schema of its claims. Every replica does that by itself: whoever may write
// the status must not stop claims.
func (r *Registration) ComparePaths(ctx context.Context, k *v1beta1.ClaimKind, kind *selector.ClaimKind) Paths {
	before := r.claimKind(k.Name).paths
	paths := Paths{Check: before.Check, Version: versionOf(ctx, r, k), served: before.served}
	found, err := r.LookUpClaims(ctx, k, "create")
	if err != nil {
		paths.Err = err
		return paths
	}
	paths.Version, paths.served = found.Version, found.Version
	s, err := r.schema(ctx, k.Resource(), found)
	paths.Err = err
	switch {
	case errors.Is(err, openapi.ErrNoSchema):
		paths.Check = selector.PathsCheck{}
	case err == nil:
		paths.Check = selector.CheckPaths(kind, s)
	}
	return paths
}

// versionOf the claims for which the paths of a claim kind are written, empty if it is the one that the API server prefers.
func versionOf(ctx context.Context, r *Registration, k *v1beta1.ClaimKind) string {
	return cmp.Or(r.memory(ctx).VersionOf(k), r.claimKind(k.Name).paths.served)
}

// LookUpClaims resolves the resource of claims, as LookUp does, in the version for which their paths are written. It returns ErrUnsuitable,
// too, where no webhook can write the reference.
func (r *Registration) LookUpClaims(ctx context.Context, k *v1beta1.ClaimKind, verbs ...string) (cluster.Resource, error) {
	if err := cluster.CheckBindable(k); err != nil {
		return cluster.Resource{}, err
	}
	return r.lookUp(ctx, k.Resource(), versionOf(ctx, r, k), verbs...)
}

// recheckAfter is when the schema is to be read again.
func (p Paths) recheckAfter() time.Duration {
	switch {
	case errors.Is(p.Err, ErrCRDNotServed):
		return RetryCRDAfter
	case p.Err != nil:
		return RetryAfter
	}
	return RecheckSchemas
}

// PathsOf the revision of a claim kind, false if they are not compared yet.
func (r *Registration) PathsOf(k *v1beta1.ClaimKind) (Paths, bool) {
	known := r.claimKind(k.Name)
	return known.paths, known.kind != nil && known.kind.Revision == inventory.RevisionOf(k)
}

// Condition PathsValid of a claim kind.
func (p Paths) Condition(view *selector.View) metav1.Condition {
	condition := metav1.Condition{Type: v1beta1.ConditionPathsValid, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonSchemaUnknown}
	reason, problem := view.PathsProblem(p.Check)
	switch {
	case reason != "" && (p.Err == nil || selector.OfPaths(reason)):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, problem
	case p.Err != nil:
		if !errors.Is(p.Err, openapi.ErrNoSchema) {
			condition.Reason = ReasonFor(p.Err)
		}
		condition.Message = fmt.Sprintf("the paths cannot be compared with the schema of the claims: %v", p.Err)
	case p.Check.Unknown != "":
		condition.Message = p.Check.Unknown
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1beta1.ReasonPathsValid
		condition.Message = "the schema of the claims has the fields of every path"
		if len(p.Check.Absent) > 0 {
			condition.Message += ", but for the defaults " + strings.Join(p.Check.Absent, " and ") + ", which no claim needs"
		}
	}
	return condition
}
