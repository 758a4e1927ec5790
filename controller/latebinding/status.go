package latebinding

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/classbind/classbind/controller/registry"
)

// Ready returns an error until the claims of the kinds that are Counted have been counted once. Without that, a new replica would take
// every class for empty. Ready does not wait for kinds that the API server refuses or does not serve, nor for any kind longer than
// registry.RefusalGrace: one registration must not block all other claims.
func (c *Claims) Ready(now time.Time) error {
	if c.settled(now) {
		return nil
	}
	for name, view := range c.registration.Inventory.Snapshot() {
		if !view.Kind.Counted {
			continue
		}
		if err := c.Problem(name); NotYet(err) {
			return fmt.Errorf("the claims of %q are not counted yet: %w", name, err)
		}
	}
	c.counted.Store(c.registration.Inventory.Snapshot() != nil)
	return nil
}

// settled reports whether there is nothing left to wait for.
func (c *Claims) settled(now time.Time) bool {
	c.began.CompareAndSwap(nil, &now)
	return c.counted.Load() || now.Sub(*c.began.Load()) >= registry.RefusalGrace
}

var errNotWatched = errors.New("they are not watched yet")

// NotYet says that the watch has only just begun.
func NotYet(err error) bool { return errors.Is(err, errNoAnswer) || errors.Is(err, errNotWatched) }

// Problem is why the claims of a kind are not known, nil if they are.
func (c *Claims) Problem(name string) error {
	c.mu.Lock()
	k := c.kinds[name]
	c.mu.Unlock()
	switch {
	case k == nil:
		return errNotWatched
	case k.watch == nil:
		return k.err
	}
	return k.watch.problem()
}

// LateProblem is why the waiting claims of a kind are not bound, nil if they are.
func (c *Claims) LateProblem(name string) error {
	if err := c.Problem(name); err != nil {
		return err
	}
	if w := c.watches()[name]; w != nil {
		return w.published.Load().late
	}
	return errNotWatched
}

// ClaimCounts are of one claim kind. None wait without BindLater.
type ClaimCounts struct{ Bound, Waiting int }

// claimSummary is what others read of a watch: how it was after the last change.
type claimSummary struct {
	counts ClaimCounts
	synced bool
	// binds says that this replica binds the waiting claims.
	binds bool
	late  error
}

// summary has only what is at hand, because it is made after each change. Without waiting
// claims, only unwritable is a reason why they are not bound.
func (s *claimState) summary() *claimSummary {
	late := s.unwritable
	if len(s.waiting) > 0 {
		late = cmp.Or(s.unwritable, s.refusal, s.namespaceErr, s.removed)
	}
	return &claimSummary{
		counts: ClaimCounts{Bound: len(s.bound.counts), Waiting: s.selected}, synced: s.synced, binds: s.binder != nil, late: late,
	}
}

// counts returns how many claims there are. synced reports whether that is known.
func (w *claimWatch) counts() (c ClaimCounts, synced bool) {
	published := w.published.Load()
	return published.counts, published.synced
}

// problem is why claims are not known, nil if they are.
func (w *claimWatch) problem() error {
	_, err := w.LastError()
	switch {
	case err != nil:
		return err
	case !w.published.Load().synced:
		return errNoAnswer
	}
	return nil
}

var errNoAnswer = errors.New("the API server has not listed the claims yet")
