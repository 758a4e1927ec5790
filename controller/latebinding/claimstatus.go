package latebinding

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/classbind/classbind/controller/registry"
)

// Ready returns an error until the claims that a strategy counts have been counted
// once. Without that, a new replica would take every class for empty. Ready does not
// wait for kinds that the API server refuses or does not serve, nor for any kind longer
// than registry.RefusalGrace: one registration must not block all other claims.
func (c *Claims) Ready(now time.Time) error {
	if c.settled(now) {
		return nil
	}
	for name, view := range c.registration.Inventory.Snapshot() {
		if !view.Kind.Strategy.Counted {
			continue
		}
		if err := c.Problem(name); NotYet(err) {
			return fmt.Errorf("the claims of %q are not counted yet: %w", name, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted = c.registration.Inventory.Snapshot() != nil
	return nil
}

// settled says whether there is nothing left to wait for.
func (c *Claims) settled(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		c.began = now
	}
	return c.counted || now.Sub(c.began) >= registry.RefusalGrace
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
		return w.lateProblem()
	}
	return errNotWatched
}

// ClaimCounts are of one claim kind. None wait without BindLater.
type ClaimCounts struct{ Bound, Waiting int }

// counts returns how many claims there are. synced says whether that is known.
func (w *claimWatch) counts() (c ClaimCounts, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Bound = len(w.bound)
	for _, n := range w.room.namespaces {
		if n.selected || !n.checked {
			c.Waiting += n.waiting
		}
	}
	return c, w.synced
}

// problem is why claims are not known, nil if they are.
func (w *claimWatch) problem() error {
	_, err := w.LastError()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !w.synced:
		return errNoAnswer
	}
	return nil
}

// lateProblem is why waiting claims are not bound, nil if they are. Without waiting
// claims, only unwritable is a problem.
func (w *claimWatch) lateProblem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return w.unwritable
	}
	return cmp.Or(w.unwritable, w.refusal, w.namespaceErr)
}

var errNoAnswer = errors.New("the API server has not listed the claims yet")
