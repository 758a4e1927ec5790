package webhook

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// errTooManyDefaults says that other reviews have the turns.
var errTooManyDefaults = errors.New("too many classes are being made default; try again in a moment")

// guardTurns limits the reviews that ask the API server: MaxGuardReviews at once, and
// of these MaxGuardReviewsOfNamespace for classes of one kind and namespace. A limited
// number of others waits, first come, first served. The zero value is ready.
type guardTurns struct {
	mu     sync.Mutex // guards all below
	all    *semaphore.Weighted
	in     int // reviews with a turn of a share, or waiting for one
	inAll  int // reviews with a turn of all, or waiting for one
	shares map[shareKey]*guardShare
}

// shareKey is the kind and namespace of classes whose reviews share turns.
type shareKey struct{ kind, namespace string }

type guardShare struct {
	turns *semaphore.Weighted
	in    int // reviews with a turn of the share, or waiting for one
}

// turn of one review. The review has to call done.
type turn struct {
	turns *guardTurns
	key   shareKey
	share *guardShare
}

// take waits for a turn for a class. It waits for the share first, so that at most
// MaxGuardReviewsOfNamespace reviews of one share wait for a turn of all.
func (t *guardTurns) take(ctx context.Context, class *selector.Class) (*turn, error) {
	taken := t.enter(shareKey{class.Kind.Name, class.Namespace})
	if taken == nil {
		return nil, errTooManyDefaults
	}
	if !acquire(ctx, taken.share.turns) {
		taken.leave()
		return nil, errTooManyDefaults
	}
	t.count(1)
	if !acquire(ctx, t.all) {
		t.count(-1)
		taken.share.turns.Release(1)
		taken.leave()
		return nil, errTooManyDefaults
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
	return t.share.in > v1alpha1.MaxGuardReviewsOfNamespace || t.turns.inAll > v1alpha1.MaxGuardReviews
}

// enter the share; nil if it is full, or all shares together are.
func (t *guardTurns) enter(key shareKey) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all, t.shares = semaphore.NewWeighted(v1alpha1.MaxGuardReviews), map[shareKey]*guardShare{}
	}
	share := t.shares[key]
	if t.in >= v1alpha1.MaxWaitingGuardReviews || share != nil && share.in >= v1alpha1.MaxWaitingGuardReviewsOfNamespace {
		return nil
	}
	if share == nil {
		share = &guardShare{turns: semaphore.NewWeighted(v1alpha1.MaxGuardReviewsOfNamespace)}
		t.shares[key] = share
	}
	t.in++
	share.in++
	return &turn{t, key, share}
}

func (t *guardTurns) count(n int) {
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
