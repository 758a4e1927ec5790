package onedefault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// patience is how long a request waits for another that is in flight, which
	// is mostly stored within milliseconds: its author is then told who won,
	// rather than to try again.
	patience = 500 * time.Millisecond
	// firstWait doubles with every wait.
	firstWait = 10 * time.Millisecond
	// putBackTimeout is for an attempt whose own time is over.
	putBackTimeout = time.Second
)

// ErrConflict says that a Lease has another version than the one to be replaced.
var ErrConflict = errors.New("the Lease was written meanwhile")

// Store is where Leases and classes are. All reads are of what the API server
// has stored, not of a cache.
type Store interface {
	// Lease of a claim kind; the zero value if there is none.
	Lease(ctx context.Context, claimKind string) (Lease, error)
	// WriteLease in the place of the one that has its Version, and return the new
	// version, or ErrConflict.
	WriteLease(ctx context.Context, claimKind string, l Lease) (version string, err error)
	// Class as it counts for a claim kind; the zero value if there is none.
	Class(ctx context.Context, claimKind string, c Class) (Live, error)
}

// Protocol runs attempts on a Store.
type Protocol struct {
	Store Store
	// Now is this replica's clock, of which any two may differ by as much as the
	// request's window is longer than the API server's longest request.
	Now func() time.Time
}

// Admit a request, or refuse it. Only what is admitted leaves Leases behind
// other than they were, unless the process ends on the way: then they are those
// of a request in flight.
func (p *Protocol) Admit(ctx context.Context, r *Request) (*Refusal, error) {
	for waited, wait := time.Duration(0), firstWait; ; waited, wait = waited+wait, min(2*wait, patience-waited-wait) {
		refusal, err := p.attempt(ctx, r)
		if err != nil || refusal == nil || refusal.RetryAfter == 0 || wait == 0 {
			return refusal, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return refusal, nil
		}
	}
}

func (p *Protocol) attempt(ctx context.Context, r *Request) (*Refusal, error) {
	a := Begin(r)
	for a.Next().Kind != Done {
		next, err := p.do(ctx, a)
		if err != nil {
			p.putBack(ctx, a.Abandon())
			if a.Refusal() != nil {
				return a.Refusal(), nil
			}
			return nil, err
		}
		a = next
	}
	return a.Refusal(), nil
}

// putBack what an attempt that cannot go on has taken. What cannot be put back
// counts as in flight.
func (p *Protocol) putBack(ctx context.Context, a Attempt) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putBackTimeout)
	defer cancel()
	for err := error(nil); err == nil && a.Next().Kind != Done; {
		a, err = p.do(ctx, a)
	}
}

// do what is next.
func (p *Protocol) do(ctx context.Context, a Attempt) (Attempt, error) {
	switch op := a.Next(); op.Kind {
	case ReadLease:
		now := p.Now()
		l, err := p.Store.Lease(ctx, op.ClaimKind)
		if err != nil {
			return a, fmt.Errorf("cannot get the Lease of claim kind %q: %w", op.ClaimKind, err)
		}
		return a.LeaseRead(l, now), nil
	case ReadClass:
		live, err := p.Store.Class(ctx, op.ClaimKind, op.Class)
		if err != nil {
			return a, fmt.Errorf("cannot tell whether %q is the default of claim kind %q: %w; let classbind read it, or delete the ClassKind %q",
				op.Class, op.ClaimKind, err, op.Class.Kind)
		}
		return a.ClassRead(live), nil
	case WriteLease:
		version, err := p.Store.WriteLease(ctx, op.ClaimKind, op.Lease)
		if err != nil && !errors.Is(err, ErrConflict) {
			return a, fmt.Errorf("cannot write the Lease of claim kind %q: %w", op.ClaimKind, err)
		}
		return a.LeaseWritten(version), nil
	case Done:
	}
	return a, nil
}
