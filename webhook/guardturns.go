package webhook

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// errManyDefaults says that others have the turns.
var errManyDefaults = errors.New("too many classes are being made default; try again in a moment")

// guardTurns are taken by reviews that ask the API server: MaxGuardReviews have one
// at once, and MaxGuardReviewsOfNamespace of them are for classes of one kind and
// namespace. The others wait in the order in which they came, and there are not too
// many of them. The zero value is ready.
type guardTurns struct {
	mu     sync.Mutex // guards all below
	all    *semaphore.Weighted
	in     int // have a turn of a share, or wait for one
	inAll  int // have a turn of all, or wait for one
	shares map[shareOf]*guardShare
}

// shareOf classes of one kind and namespace.
type shareOf struct{ kind, namespace string }

type guardShare struct {
	turns *semaphore.Weighted
	in    int // have a turn of the share, or wait for one
}

// turn of one review. Whoever takes it calls done.
type turn struct {
	turns *guardTurns
	of    shareOf
	share *guardShare
}

// take a turn for a class, when there is one. A review waits for its share first, so
// that those of one share that wait for a turn of all are no more than have one.
func (t *guardTurns) take(ctx context.Context, class *selector.Class) (*turn, error) {
	taken := t.enter(shareOf{class.Kind.Name, class.Namespace})
	if taken == nil {
		return nil, errManyDefaults
	}
	if !acquire(ctx, taken.share.turns) {
		taken.leave()
		return nil, errManyDefaults
	}
	t.count(1)
	if !acquire(ctx, t.all) {
		t.count(-1)
		taken.share.turns.Release(1)
		taken.leave()
		return nil, errManyDefaults
	}
	return taken, nil
}

// acquire one that is free even where no time is left.
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
	return t.share.in > v1alpha1.MaxGuardReviewsOfNamespace || t.turns.inAll > v1alpha1.MaxGuardReviews
}

// enter the share; nil, too many have.
func (t *guardTurns) enter(of shareOf) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all, t.shares = semaphore.NewWeighted(v1alpha1.MaxGuardReviews), map[shareOf]*guardShare{}
	}
	share := t.shares[of]
	if t.in >= v1alpha1.MaxWaitingGuardReviews || share != nil && share.in >= v1alpha1.MaxWaitingGuardReviewsOfNamespace {
		return nil
	}
	if share == nil {
		share = &guardShare{turns: semaphore.NewWeighted(v1alpha1.MaxGuardReviewsOfNamespace)}
		t.shares[of] = share
	}
	t.in++
	share.in++
	return &turn{t, of, share}
}

func (t *guardTurns) count(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inAll += n
}

// leave the share, which is forgotten with its last review.
func (t *turn) leave() {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.turns.in--
	if t.share.in--; t.share.in == 0 {
		delete(t.turns.shares, t.of)
	}
}
