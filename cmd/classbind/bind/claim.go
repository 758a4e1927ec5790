package bind

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// maxAttempts limits how often a claim is read again that others change meanwhile.
const maxAttempts = 5

// unreadable is the reason for a claim that is not read as the kind has it. Others are read nevertheless.
const unreadable = "Unreadable"

// bind one claim, as it was read or, if s is nil, as it is now, and report what became of it. With an error, there is no use
// in going on with others.
func (b *binder) bind(ctx context.Context, namespace, name string, s *latebinding.Stored) error {
	named, last := s == nil, error(nil)
	for range maxAttempts {
		if s == nil {
			raw, err := b.claims.Get(ctx, b.kind.Resource, namespace, name)
			if err != nil {
				return err
			}
			if raw == nil {
				if named { // Otherwise it was deleted meanwhile.
					b.report.print(b.claim(namespace, name).failed("NotFound", errors.New("there is no claim of this name")))
				}
				return nil
			}
			read, err := latebinding.ReadStored(b.kind.Kind, raw)
			if err != nil {
				b.report.print(b.claim(namespace, name).failed(unreadable, err))
				return nil
			}
			s = &read
		}
		c, err := b.attempt(ctx, s)
		if c != nil {
			b.report.print(c)
		}
		if c != nil || err != nil && !latebinding.IsOutdated(err) {
			return err
		}
		named, last, s = false, err, nil
	}
	// A webhook that denies every patch may answer like an outdated version.
	b.report.print(b.claim(namespace, name).failed("NotWritten",
		fmt.Errorf("others change the claim all the time, or refuse the change: %w", last)))
	return nil
}

// attempt to bind a claim as it was read. It returns what became of it, or an error: one with which IsOutdated holds if
// the claim has changed since, and otherwise one that concerns all claims.
func (b *binder) attempt(ctx context.Context, s *latebinding.Stored) (*Claim, error) {
	c := b.claim(s.Namespace, s.Name)
	if s.Bound {
		return c.leftAlone(claim.Settled, "the claim has its class"), nil
	}
	why, err := b.kind.Excluded(ctx, s.Namespace)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		return c.leftAlone("NamespaceNotSelected", why), nil
	}
	d, err := b.kind.Decide(ctx, s.Intake)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot decide on the claim %s: %w", c, err)
	case d.Claim.LeftAlone == claim.Settled:
		return c.leftAlone(claim.Settled, d.Claim.SettledBy+" is set"), nil
	case d.Claim.LeftAlone != "":
		return c.leftAlone(d.Claim.LeftAlone, "classbind explain shows why"), nil
	case len(d.Claim.Problems) > 0:
		return c.failed(d.Reason(), errors.New(d.Warning())), nil
	case d.Unneeded():
		return c.leftAlone(d.Reason(), "it asks for no class, and none is the default"), nil
	case d.Class == nil:
		return c.end(Unmatched, d.Reason(), d.Warning()), nil
	case d.Given():
		return c.leftAlone(claim.Settled, "the claim has its class"), nil
	}
	class := selector.NameOf(d.Class)
	c.Class, c.class = &class, d.Class.String()
	if b.dryRun {
		if b.tally != nil { // As if it were stored, so that the next claims see it, and nothing stays in flight.
			target := d.Class.Target()
			classes := b.kind.Kind.CountsFor(s.Namespace, target)
			b.tallied(classes)
			b.tally.Seen(s.Namespace, s.Name, "", classes)
		}
		return c.end(Bound, d.Reason(), ""), nil
	}
	object, _, err := b.claims.WriteClass(ctx, b.kind.Resource, s.UID, s.Version, &d)
	switch {
	case err == nil:
		if b.tally != nil {
			classes, _ := b.kind.Kind.BoundTo(s.Namespace, object)
			b.tallied(classes)
			b.tally.Seen(s.Namespace, s.Name, "", classes)
		}
		return c.end(Bound, d.Reason(), ""), nil
	case latebinding.IsOutdated(err), latebinding.IsUnauthorized(err), !concernsOne(err):
		return nil, err
	}
	return c.failed("NotWritten", err), nil
}

// concernsOne reports whether the API server refused one claim, so that others may still be written. client-go has waited
// where a Retry-After asked for it.
func concernsOne(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return errors.Is(err, latebinding.ErrReferenceRemoved)
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
		code != http.StatusUnauthorized && code != http.StatusTooManyRequests
}
