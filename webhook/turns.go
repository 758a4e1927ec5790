package webhook

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/classbind/classbind/api/v1alpha1"
)

var (
	// errTooManyDefaults and errTooManyDecisions say that other reviews have the turns.
	errTooManyDefaults  = errors.New("too many classes are being made default; try again in a moment")
	errTooManyDecisions = errors.New("too many claims take long to decide on; try again in a moment")
)

// turnLimits are how many reviews have a turn at once, and how many have one or wait for one,
// of all shares and of one.
type turnLimits struct{ all, ofShare, waiting, waitingOfShare int }

var (
	// guardLimits are for the reviews that ask the API server about default classes. A share
	// is that of the classes of one kind and namespace.
	guardLimits = turnLimits{
		v1alpha1.MaxGuardReviews, v1alpha1.MaxGuardReviewsOfNamespace,
		v1alpha1.MaxWaitingGuardReviews, v1alpha1.MaxWaitingGuardReviewsOfNamespace,
	}
	// decisionLimits are for the decisions that take much CPU. A share is that of the claims
	// of one namespace.
	decisionLimits = turnLimits{
		v1alpha1.MaxCostlyDecisions, v1alpha1.MaxCostlyDecisionsOfNamespace,
		v1alpha1.MaxWaitingCostlyDecisions, v1alpha1.MaxWaitingCostlyDecisionsOfNamespace,
	}
)

// turns limits the reviews that do something at once, and of these those of one share. A limited
// number of others waits, first come, first served.
type turns struct {
	limits turnLimits
	err    error // beyond the limits

	mu     sync.Mutex // guards all below
	all    *semaphore.Weighted
	in     int // reviews with a turn of a share, or waiting for one
	inAll  int // reviews with a turn of all, or waiting for one
	shares map[shareKey]*share
}

func newTurns(limits turnLimits, err error) *turns {
	return &turns{limits: limits, err: err, all: semaphore.NewWeighted(int64(limits.all)), shares: map[shareKey]*share{}}
}

// CostlyDecisions returns what a Decider needs to limit the decisions that take much CPU.
func CostlyDecisions() func(ctx context.Context, namespace string) (done func(), err error) {
	turns := newTurns(decisionLimits, errTooManyDecisions)
	return func(ctx context.Context, namespace string) (func(), error) {
		turn, err := turns.take(ctx, shareKey{namespace: namespace})
		if err != nil {
			return nil, err
		}
		return turn.done, nil
	}
}

// shareKey is the kind and namespace of objects whose reviews share turns. The kind is empty for
// claims.
type shareKey struct{ kind, namespace string }

type share struct {
	turns *semaphore.Weighted
	in    int // reviews with a turn of the share, or waiting for one
}

// turn of one review. The review has to call done.
type turn struct {
	turns *turns
	key   shareKey
	share *share
}

// take waits for a turn. It waits for the share first, so that few reviews of one share wait for a
// turn of all.
func (t *turns) take(ctx context.Context, key shareKey) (*turn, error) {
	taken := t.enter(key)
	if taken == nil {
		return nil, t.err
	}
	if !acquire(ctx, taken.share.turns) {
		taken.leave()
		return nil, t.err
	}
	t.count(1)
	if !acquire(ctx, t.all) {
		t.count(-1)
		taken.share.turns.Release(1)
		taken.leave()
		return nil, t.err
	}
	return taken, nil
}

// acquire takes a free one even after ctx has ended.
func acquire(ctx context.Context, from *semaphore.Weighted) bool {
	return from.TryAcquire(1) || from.Acquire(ctx, 1) == nil
}

func (t *turn) done() {
	t.turns.all.Release(1)
	t.turns.count(-1)
	t.share.turns.Release(1)
	t.leave()
}

// wanted says that another review waits for this turn.
func (t *turn) wanted() bool {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	return t.share.in > t.turns.limits.ofShare || t.turns.inAll > t.turns.limits.all
}

// enter the share; nil if it is full, or all shares together are.
func (t *turns) enter(key shareKey) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.shares[key]
	if t.in >= t.limits.waiting || of != nil && of.in >= t.limits.waitingOfShare {
		return nil
	}
	if of == nil {
		of = &share{turns: semaphore.NewWeighted(int64(t.limits.ofShare))}
		t.shares[key] = of
	}
	t.in++
	of.in++
	return &turn{t, key, of}
}

func (t *turns) count(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inAll += n
}

// leave the share. Its last review deletes it.
func (t *turn) leave() {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.turns.in--
	if t.share.in--; t.share.in == 0 {
		delete(t.turns.shares, t.key)
	}
}
