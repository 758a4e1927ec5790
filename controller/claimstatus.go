package controller

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// describe writes what is known of a kind's claims into its status.
func (c *Claims) describe(k *v1alpha1.ClaimKind, status *v1alpha1.ClaimKindStatus) {
	later, counted := k.Spec.WhenUnmatched == v1alpha1.BindLater, selector.CountsClaims(k.Spec.Strategy)
	if w := c.watches()[k.Name]; w != nil { // Until then, the numbers of the last leader stay.
		if n, synced := w.counts(); synced {
			status.BoundClaims, status.WaitingClaims = new(int32(n.Bound)), new(int32(n.Waiting)) //nolint:gosec // No API server holds two thousand million claims.
		}
	}
	if !later && !counted {
		status.BoundClaims = nil
	}
	if !later { // No claim waits.
		status.WaitingClaims = nil
	}
	describe := func(applies bool, problem func(string) error, conditionType, met, unmet string) {
		if !applies {
			meta.RemoveStatusCondition(&status.Conditions, conditionType)
			return
		}
		err := problem(k.Name)
		if notYet(err) && meta.FindStatusCondition(status.Conditions, conditionType) != nil {
			return // The last leader's condition stays while this watch begins.
		}
		setCondition(&status.Conditions, condition(err, conditionType, met, unmet), k.Generation)
	}
	describe(later, c.lateProblem, v1alpha1.ConditionLateBinding,
		"claims without a class are bound when there is one for them", "claims without a class are not bound later")
	describe(counted, c.problem, v1alpha1.ConditionClaimsCounted,
		"the claims of each class are counted", "the claims of each class are not counted, so only those of a moment ago count")
}

// condition has the message met without an error, and unmet with one.
func condition(err error, conditionType, met, unmet string) metav1.Condition {
	if err == nil {
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWatched, Message: met}
	}
	result := metav1.Condition{
		Type: conditionType, Status: metav1.ConditionFalse,
		Reason: reasonFor(err), Message: fmt.Sprintf("%s: %v", unmet, err),
	}
	if apierrors.IsForbidden(err) {
		result.Reason = v1alpha1.ReasonNotPermitted
		result.Message += fmt.Sprintf(": label a ClusterRole that allows list, watch and, for BindLater, patch with %s=true",
			v1alpha1.AggregateLabel)
	}
	return result
}

// Ready returns an error until the claims that a strategy counts have been counted
// once. Without that, a new replica would take every class for empty. Ready does not
// wait for kinds that the API server refuses or does not serve, nor for any kind longer
// than refusalGrace: one registration must not block all other claims.
func (c *Claims) Ready(now time.Time) error {
	if c.settled(now) {
		return nil
	}
	for name, view := range c.registration.Inventory.Snapshot() {
		if !view.Kind.Strategy.Counted {
			continue
		}
		if err := c.problem(name); notYet(err) {
			return fmt.Errorf("the claims of %q are not counted yet: %w", name, err)
		}
	}
	c.counted.Store(c.registration.Inventory.Snapshot() != nil)
	return nil
}

// settled says whether there is nothing left to wait for.
func (c *Claims) settled(now time.Time) bool {
	c.began.CompareAndSwap(nil, &now)
	return c.counted.Load() || now.Sub(*c.began.Load()) >= refusalGrace
}

var errNotWatched = errors.New("they are not watched yet")

// notYet says that the watch has only just begun.
func notYet(err error) bool { return errors.Is(err, errNoAnswer) || errors.Is(err, errNotWatched) }

// problem is why the claims of a kind are not known, nil if they are.
func (c *Claims) problem(name string) error {
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

// lateProblem is why the waiting claims of a kind are not bound, nil if they are.
func (c *Claims) lateProblem(name string) error {
	if err := c.problem(name); err != nil {
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
	late   error
}

// summary has only what is at hand, because it is made after each change.
func (s *claimState) summary() *claimSummary {
	return &claimSummary{counts: ClaimCounts{Bound: len(s.bound), Waiting: s.selected}, synced: s.synced, late: s.lateProblem()}
}

// lateProblem is why waiting claims are not bound, nil if they are. Without waiting
// claims, only unwritable is a problem.
func (s *claimState) lateProblem() error {
	if len(s.waiting) == 0 {
		return s.unwritable
	}
	return cmp.Or(s.unwritable, s.refusal, s.namespaceErr)
}

// counts returns how many claims there are. synced says whether that is known.
func (w *claimWatch) counts() (c ClaimCounts, synced bool) {
	published := w.published.Load()
	return published.counts, published.synced
}

// problem is why claims are not known, nil if they are.
func (w *claimWatch) problem() error {
	_, err := w.lastError()
	switch {
	case err != nil:
		return err
	case !w.published.Load().synced:
		return errNoAnswer
	}
	return nil
}

var errNoAnswer = errors.New("the API server has not listed the claims yet")
