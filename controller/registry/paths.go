package registry

import (
	"context"
	"errors"
	"time"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/openapi"
)

// recheckPaths is how often a schema is read again: one that is not a CRD's changes
// without an event.
const recheckPaths = 5 * time.Minute

// Paths are what the schema of a kind's claims says of its registration.
type Paths struct {
	Check selector.PathsCheck
	// Err is why the schema cannot be read, nil if it can. While the API server does not answer, the
	// check stays: where it removes the reference, only another schema mends that.
	Err error
}

// comparePaths of a registration with the schema of its claims. Every replica does that by itself:
// whoever may write the status must not stop claims.
func (r *Registration) comparePaths(ctx context.Context, k *v1alpha1.ClaimKind) Paths {
	before := r.claimKind(k.Name)
	s, err := r.Schema(ctx, k)
	switch {
	case errors.Is(err, openapi.ErrNoSchema):
		return Paths{Err: err}
	case err != nil:
		return Paths{before.paths.Check, err}
	}
	kind := before.kind
	if kind == nil || kind.Revision != selector.RevisionOf(k) {
		kind = selector.NewClaimKind(k)
	}
	return Paths{Check: selector.CheckPaths(kind, s)}
}

// recheckAfter is when the schema is to be read again.
func (p Paths) recheckAfter() time.Duration {
	switch {
	case errors.Is(p.Err, ErrCRDNotServed):
		return RetryCRDAfter
	case p.Err != nil:
		return RetryAfter
	}
	return recheckPaths
}

// PathsOf the revision of a claim kind, false if they are not compared yet.
func (r *Registration) PathsOf(k *v1alpha1.ClaimKind) (Paths, bool) {
	known := r.claimKind(k.Name)
	return known.paths, known.kind != nil && known.kind.Revision == selector.RevisionOf(k)
}
