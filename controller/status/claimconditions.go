package status

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
)

// faultsOfClaims are the reasons of a fault for which no claim is bound, neither now nor later.
var faultsOfClaims = []string{v1alpha1.ReasonConflict, v1alpha1.ReasonInvalidExpression, v1alpha1.ReasonRelatedMissing}

// describeClaims writes what is known of a kind's claims into its status.
func (s *Writer) describeClaims(k *v1alpha1.ClaimKind, status *v1alpha1.ClaimKindStatus) {
	later, counted := k.Spec.WhenUnmatched == v1alpha1.BindLater, selector.CountsClaims(k.Spec.Strategy)
	if n, known := s.Claims.CountsOf(k.Name); known { // Until then, the numbers of the last leader stay.
		status.BoundClaims, status.WaitingClaims = new(int32(n.Bound)), new(int32(n.Waiting)) //nolint:gosec // No API server holds two thousand million claims.
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
		if latebinding.NotYet(err) && meta.FindStatusCondition(status.Conditions, conditionType) != nil {
			return // The last leader's condition stays while this watch begins.
		}
		setCondition(&status.Conditions, condition(err, conditionType, met, unmet), k.Generation)
	}
	late := func(name string) error {
		now := *k
		now.Status = *status
		if fault := selector.PathsFault(&now); fault != nil {
			return fault
		}
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && slices.Contains(faultsOfClaims, ready.Reason) {
			return &selector.Fault{Reason: ready.Reason, Text: ready.Message}
		}
		return s.Claims.LateProblem(name)
	}
	describe(later, late, v1alpha1.ConditionLateBinding,
		"claims without a class are bound when there is one for them", "claims without a class are not bound later")
	describe(counted, s.Claims.Problem, v1alpha1.ConditionClaimsCounted,
		"the claims of each class are counted",
		"the claims of each class are not counted, so only those bound in the last 40 seconds count")
}

// countClaims writes how many claims have a class of a kind, nil classes if those are not
// known.
func (s *Writer) countClaims(classes *selector.Classes, status *v1alpha1.ClassKindStatus) {
	if classes == nil {
		status.Claims = nil
		return
	}
	n, known, complete := s.Claims.OfClasses(classes)
	switch {
	case !complete: // The number of the last leader stays.
	case known:
		status.Claims = new(int32(n)) //nolint:gosec // No API server holds two thousand million claims.
	default:
		status.Claims = nil
	}
}

// onClassCounts calls a function with each class kind that serves a claim kind whose
// claims were described, until the context ends. So claims that change one by one ask for
// many class kinds no more often than for one claim kind.
func (s *Writer) onClassCounts(ctx context.Context, call func(classKind string)) {
	s.counted.Add(ctx, func(claimKind string) {
		if view := s.Snapshot()[claimKind]; view != nil {
			for _, classes := range view.Classes {
				call(classes.Kind.Name)
			}
		}
	})
}

// condition has the message met without an error, and unmet with one.
func condition(err error, conditionType, met, unmet string) metav1.Condition {
	if err == nil {
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWatched, Message: met}
	}
	result := metav1.Condition{
		Type: conditionType, Status: metav1.ConditionFalse,
		Reason: registry.ReasonFor(err), Message: fmt.Sprintf("%s: %v", unmet, err),
	}
	if fault := (*selector.Fault)(nil); errors.As(err, &fault) {
		result.Reason = fault.Reason
	}
	if apierrors.IsForbidden(err) {
		result.Reason = v1alpha1.ReasonNotPermitted
		result.Message += fmt.Sprintf(": label a ClusterRole that allows list, watch and, for BindLater, patch with %s=true",
			v1alpha1.AggregateLabel)
	}
	return result
}
