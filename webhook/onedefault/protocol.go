package onedefault

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/recovered"
)

const (
	// maxWait is how long a request waits for another that is in flight. That one is mostly stored within milliseconds, and the author then
	// learns who won instead of having to try again.
	maxWait = 500 * time.Millisecond
	// firstWait is the first pause. Each pause of a request is twice as long as the one before.
	firstWait = 10 * time.Millisecond
	// takeOutTimeout is the time to take out writes, whatever time the request has left.
	takeOutTimeout = time.Second
)

// Admit a request, or refuse it. A refused request leaves no write in flight behind, unless the process or its connection ends on the way.
func (c *Cluster) Admit(ctx context.Context, r *Request) (*Refusal, error) {
	for waited, pause := time.Duration(0), firstWait; ; waited, pause = waited+pause, min(2*pause, maxWait-waited-pause) {
		refusal, err := c.attempt(ctx, r)
		if err != nil || refusal == nil || refusal.Reason != InFlight || pause == 0 || c.Contended != nil && c.Contended() {
			return refusal, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return refusal, nil
		}
	}
}

func (c *Cluster) attempt(ctx context.Context, r *Request) (*Refusal, error) {
	a := Begin(r, rand.Text())
	for a.phase < takingOut {
		next, err := c.do(ctx, a)
		if err != nil {
			c.takeOut(ctx, a.Abandon())
			return nil, err
		}
		a = next
	}
	c.takeOut(ctx, a)
	return a.Refusal(), nil
}

// takeOut what a refused attempt has written. A write that stays counts as in flight.
func (c *Cluster) takeOut(ctx context.Context, a Attempt) {
	ctx = context.WithoutCancel(ctx)
	_ = wait.PollUntilContextTimeout(ctx, firstWait, takeOutTimeout, true, func(ctx context.Context) (done bool, err error) {
		for err == nil && a.Next() != nil {
			a, err = c.do(ctx, a)
		}
		return err == nil, nil
	})
}

// do all operations that can be done now. On an error, the returned attempt knows those that succeeded.
func (c *Cluster) do(ctx context.Context, a Attempt) (Attempt, error) {
	ops := a.Next()
	results := make([]*Result, len(ops))
	var all errgroup.Group
	all.SetLimit(v1beta1.MaxGuardCalls)
	for i, op := range ops {
		all.Go(recovered.Func(func() (err error) {
			results[i], err = c.result(ctx, op)
			return err
		}))
	}
	err := all.Wait()
	for i, r := range results {
		if r != nil {
			a = a.Done(ops[i], *r)
		}
	}
	return a, err
}

// result of an operation, nil with an error.
func (c *Cluster) result(ctx context.Context, op Op) (r *Result, err error) {
	r = &Result{}
	switch op.Kind {
	case ReadLease:
		if r.Lease, err = c.lease(ctx, LeaseName(op.Seat)); err != nil {
			return nil, fmt.Errorf("cannot get the Lease of %s: %w", describe(op.Seat), err)
		}
	case ReadClass:
		if r.Live, err = c.Live(ctx, op.Class); err != nil {
			wayOut := "try again"
			if apierrors.IsForbidden(err) {
				wayOut = fmt.Sprintf("let classbind read it, or delete the ClassKind %q", op.Class.Kind)
			}
			return nil, fmt.Errorf("cannot determine whether %q is a default class: %w; %s", op.Class, err, wayOut)
		}
	default:
		if r.Written, err = c.write(ctx, op.Seat, op.Lease); err != nil {
			return nil, fmt.Errorf("cannot write the Lease of %s: %w", describe(op.Seat), err)
		}
	}
	return r, nil
}
