package onedefault

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

const (
	// maxWait is how long a request waits for another that is in flight. That one is mostly stored within milliseconds, and the author then
	// learns who won instead of having to try again.
	maxWait = 500 * time.Millisecond
	// firstWait is the first pause. Each pause is twice as long as the one before.
	firstWait = 10 * time.Millisecond
	// takeOutTimeout is the time to take out writes, whatever time the request has left.
	takeOutTimeout = time.Second
)

// ErrConflict says that a Lease does not have the version to replace.
var ErrConflict = errors.New("the Lease has changed")

// Store reads and writes Leases and reads classes. Reads return what the API server has stored, not a cache. All methods are called
// concurrently.
type Store interface {
	// Lease of a seat; the zero value if there is none.
	Lease(ctx context.Context, seat inventory.Seat) (Lease, error)
	// WriteLease replaces the Lease that has its Version, or deletes it if the new one is free; or returns ErrConflict.
	WriteLease(ctx context.Context, seat inventory.Seat, l Lease) error
	// Class as it is stored now; the zero value if there is none.
	Class(ctx context.Context, c Class) (Live, error)
}

// Protocol runs attempts on a Store.
type Protocol struct {
	Store Store
	// Contended reports whether other requests wait for this one, which is refused then at once instead of waiting for what is in flight.
	// Nil means that none waits.
	Contended func() bool
}

// Admit a request, or refuse it. A refused request leaves no write in flight behind, unless the process or its connection ends on the way.
func (p *Protocol) Admit(ctx context.Context, r *Request) (*Refusal, error) {
	for waited, wait := time.Duration(0), firstWait; ; waited, wait = waited+wait, min(2*wait, maxWait-waited-wait) {
		refusal, err := p.attempt(ctx, r)
		if err != nil || refusal == nil || refusal.Reason != InFlight || wait == 0 || p.Contended != nil && p.Contended() {
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
	a := Begin(r, rand.Text())
	for a.Next() != nil && a.phase != takingOut {
		next, err := p.do(ctx, a)
		if err != nil {
			p.takeOut(ctx, a.Abandon())
			return nil, err
		}
		a = next
	}
	p.takeOut(ctx, a)
	return a.Refusal(), nil
}

// takeOut what a refused attempt has written. A write that stays counts as in flight.
func (p *Protocol) takeOut(ctx context.Context, a Attempt) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeOutTimeout)
	defer cancel()
	for wait := firstWait; a.Next() != nil && ctx.Err() == nil; {
		next, err := p.do(ctx, a)
		a = next
		if err == nil {
			continue
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-ctx.Done():
		}
	}
}

// do all operations that can be done now. On an error, the returned attempt knows those that succeeded.
func (p *Protocol) do(ctx context.Context, a Attempt) (Attempt, error) {
	ops := a.Next()
	results := make([]func(Attempt) Attempt, len(ops))
	var all errgroup.Group
	all.SetLimit(v1beta1.MaxGuardCalls)
	for i, op := range ops {
		all.Go(func() (err error) {
			results[i], err = p.result(ctx, op)
			return err
		})
	}
	err := all.Wait()
	for _, result := range results {
		if result != nil {
			a = result(a)
		}
	}
	return a, err
}

// result does an operation and returns the next step of the attempt.
func (p *Protocol) result(ctx context.Context, op Op) (func(Attempt) Attempt, error) {
	switch op.Kind {
	case ReadLease:
		l, err := p.Store.Lease(ctx, op.Seat)
		if err != nil {
			return nil, fmt.Errorf("cannot get the Lease of %s: %w", describe(op.Seat), err)
		}
		return func(a Attempt) Attempt { return a.LeaseRead(op, l) }, nil
	case ReadClass:
		live, err := p.Store.Class(ctx, op.Class)
		if err != nil {
			return nil, fmt.Errorf("cannot tell whether %q is a default class: %w; let classbind read it, or delete the ClassKind %q",
				op.Class, err, op.Class.Kind)
		}
		return func(a Attempt) Attempt { return a.ClassRead(op, live) }, nil
	default:
		err := p.Store.WriteLease(ctx, op.Seat, op.Lease)
		if err != nil && !errors.Is(err, ErrConflict) {
			return nil, fmt.Errorf("cannot write the Lease of %s: %w", describe(op.Seat), err)
		}
		return func(a Attempt) Attempt { return a.LeaseWritten(op, err == nil) }, nil
	}
}
