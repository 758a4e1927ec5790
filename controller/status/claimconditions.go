package status

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// faultsOfClaims are the reasons of a fault for which no claim is bound, neither now nor later.
var faultsOfClaims = []string{
	v1beta1.ReasonConflict, v1beta1.ReasonInvalidExpression, v1beta1.ReasonRelatedMissing,
	v1beta1.ReasonReferencePruned, v1beta1.ReasonPathsInvalid, v1beta1.ReasonUnknownValue,
}

// describeClaims writes what is known of a kind's claims into its status.
func (s *Writer) describeClaims(k *v1beta1.ClaimKind, counted bool) {
	status := &k.Status
	later := k.Spec.WhenUnmatched == v1beta1.BindLater
	if n, known := s.Claims.CountsOf(k.Name); known { // Until then, the numbers of the last leader stay.
		status.BoundClaims, status.WaitingClaims = new(int32(n.Bound)), new(int32(n.Waiting)) //nolint:gosec // No API server holds two thousand million claims.
	}
	if !later && !counted {
		status.BoundClaims = nil
	}
	if !later { // No claim waits.
		status.WaitingClaims = nil
	}
	describe := func(applies bool, problem func(string) error, condition func(error) metav1.Condition) {
		var err error
		if applies {
			err = problem(k.Name)
		}
		c := condition(err)
		switch {
		case !applies:
			meta.RemoveStatusCondition(&status.Conditions, c.Type)
		case latebinding.NotYet(err) && meta.FindStatusCondition(status.Conditions, c.Type) != nil:
			// The last leader's condition stays while this watch begins.
		default:
			setCondition(&status.Conditions, c, k.Generation)
		}
	}
	late := func(name string) error {
		ready := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady)
		if ready != nil && slices.Contains(faultsOfClaims, ready.Reason) {
			return &inventory.Fault{Reason: ready.Reason, Text: ready.Message}
		}
		return s.Claims.LateProblem(name)
	}
	describe(later, late, lateBinding)
	describe(counted, s.Claims.Problem, claimsCounted)
}

// lateBinding is the condition of a kind with BindLater, by why its claims cannot be bound later.
func lateBinding(err error) metav1.Condition {
	return condition(err, v1beta1.ConditionLateBinding,
		"claims without a class are bound when there is one for them", "claims without a class are not bound later")
}

// claimsCounted is the condition of a kind whose claims are to be counted, by why they cannot be.
func claimsCounted(err error) metav1.Condition {
	return condition(err, v1beta1.ConditionClaimsCounted, "the claims of each class are counted",
		"the claims of each class are not counted, so only those bound in the last 40 seconds count, and no class "+
			"is deleted whose ClassKind has spec.onDelete Deny")
}

// countClaims writes how many claims have a class of a kind, nil classes if those are not known.
func (s *Writer) countClaims(k *v1beta1.ClassKind, classes *inventory.Classes) {
	if classes == nil {
		k.Status.Claims = nil
		return
	}
	n, known, complete := s.Claims.OfClasses(classes)
	switch {
	case !complete: // The number of the last leader stays.
	case known:
		k.Status.Claims = new(int32(n)) //nolint:gosec // No API server holds two thousand million claims.
	default:
		k.Status.Claims = nil
	}
}

// onClassCounts calls a function with each class kind that serves a claim kind whose claims were described, until the context ends. So
// claims that change one by one ask for many class kinds no more often than for one claim kind.
func (s *Writer) onClassCounts(ctx context.Context, call func(classKind string)) {
	s.counted.Add(ctx, func(claimKind string) {
		if view := s.Snapshot()[claimKind]; view != nil {
			for _, classes := range view.Classes {
				call(classes.Kind.Name)
			}
		}
	})
}

// condition has the message without an error, and unmet with one.
func condition(err error, conditionType, message, unmet string) metav1.Condition {
	if err == nil {
		return met(conditionType, v1beta1.ReasonWatched, message)
	}
	result := metav1.Condition{
		Type: conditionType, Status: metav1.ConditionFalse,
		Reason: registry.ReasonFor(err), Message: fmt.Sprintf("%s: %v", unmet, err),
	}
	if fault := (*inventory.Fault)(nil); errors.As(err, &fault) {
		result.Reason = fault.Reason
	}
	if apierrors.IsForbidden(err) {
		result.Reason = v1beta1.ReasonNotPermitted
		result.Message += fmt.Sprintf(": label a ClusterRole that allows list, watch and, for BindLater, patch with %s=true",
			v1beta1.AggregateLabel)
	}
	return result
}

// describeClassKinds reports whether the classes of every class kind that serves a claim kind are
// known, and what lets classbind read them, and whether those that it names are registered.
func (s *Writer) describeClassKinds(ctx context.Context, k *v1beta1.ClaimKind, view *selector.View) error {
	var missing []string
	for _, named := range k.Spec.Classes.Kinds {
		err := s.Client.Get(ctx, client.ObjectKey{Name: named.Name}, &v1beta1.ClassKind{})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot get class kind %q: %w", named.Name, err)
		}
		if err != nil {
			missing = append(missing, named.Name)
		}
	}
	c := classKindsRead(view.Unread, func(name string) string { return s.Registration.State(name).Message })
	if c.Status == metav1.ConditionTrue && len(missing) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonNotRegistered
		c.Message = unregistered("spec.classes.kinds", "ClassKind", missing)
	}
	setCondition(&k.Status.Conditions, c, k.Generation)
	return nil
}

// classKindsRead is the condition of a claim kind, by the class kinds that are not read, with the message of each.
func classKindsRead(unread []selector.UnreadKind, message func(classKind string) string) metav1.Condition {
	c := met(v1beta1.ConditionClassKindsRead, v1beta1.ReasonClassKindsRead,
		"the classes of every installed class kind that serves it are known")
	if len(unread) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, unread[0].Reason
		c.Message = "claims are decided on without the classes of " + selector.ListFunc(unread, func(u selector.UnreadKind) string {
			return fmt.Sprintf("%q: %s", u.Name, message(u.Name))
		})
	}
	return c
}

// describeExpressions writes whether the expressions of a claim kind compile, and whether the objects that its claims name are known.
func (s *Writer) describeExpressions(k *v1beta1.ClaimKind, view *selector.View) {
	mistyped, known := s.claimTypes.of(k)
	if k.Spec.HasExpressions() {
		setExpressionsValid(&k.Status.Conditions, expressionsValid(view.Kind.InvalidExpressions(), mistyped), known, k.Generation)
	} else {
		meta.RemoveStatusCondition(&k.Status.Conditions, v1beta1.ConditionExpressionsValid)
	}
	related := s.Registration.RelatedState(k.Name)
	if related.Reason == "" {
		meta.RemoveStatusCondition(&k.Status.Conditions, v1beta1.ConditionRelatedKnown)
		return
	}
	c := met(v1beta1.ConditionRelatedKnown, related.Reason, related.Message)
	if !related.Known {
		c.Status = metav1.ConditionFalse
	}
	setCondition(&k.Status.Conditions, c, k.Generation)
}

// describeDefaulting writes whether the API server itself gives the default class, for a kind
// that asks for it. Until the leader knows, the condition of the last one stays.
func (s *Writer) describeDefaulting(k *v1beta1.ClaimKind) {
	if k.Spec.Admission.Defaulting != v1beta1.DefaultingPolicy {
		meta.RemoveStatusCondition(&k.Status.Conditions, v1beta1.ConditionDefaultedByPolicy)
		return
	}
	if outcome, known := s.Defaults.Outcome(k.Name); known {
		setCondition(&k.Status.Conditions, ofPolicy(outcome, met(v1beta1.ConditionDefaultedByPolicy, v1beta1.ReasonConfigured,
			fmt.Sprintf("the API server itself gives the default class %s to claims without a selector", outcome.Class)),
			"claims without a selector come to classbind"), k.Generation)
	}
}

// describeUse does the same for whether the API server itself checks who may use a class.
func (s *Writer) describeUse(k *v1beta1.ClaimKind) {
	if k.Spec.Classes.Use == nil {
		meta.RemoveStatusCondition(&k.Status.Conditions, v1beta1.ConditionUseEnforced)
		return
	}
	outcome, known := s.Uses.Outcome(k.Name)
	if !known {
		if meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionUseEnforced) != nil {
			return
		}
		outcome.Fault = &inventory.Fault{Reason: v1beta1.ReasonNotConfigured, Text: "the classes of the kind are not known yet"}
	}
	setCondition(&k.Status.Conditions, ofPolicy(outcome, met(v1beta1.ConditionUseEnforced, v1beta1.ReasonEnforced,
		"the API server itself checks who may use the class that a claim names"),
		"who may use a class is not checked as registered"), k.Generation)
}

// ofPolicy is the condition without a fault, and unmet with one.
func ofPolicy(outcome webhookconfig.PolicyOutcome, c metav1.Condition, unmet string) metav1.Condition {
	if fault := outcome.Fault; fault != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, fault.Reason, unmet+": "+fault.Text
		if fault.Reason == v1beta1.ReasonNotConfigured { // It is a matter of seconds.
			c.Status = metav1.ConditionUnknown
		}
	}
	return c
}

// describeStorage says of PersistentVolumeClaims whether their selectors are heeded. It
// is false for other claims. Nothing tells of a change, so it is to be asked again.
func (s *Writer) describeStorage(ctx context.Context, k *v1beta1.ClaimKind) bool {
	if !cluster.GetsStorageClass(k) {
		meta.RemoveStatusCondition(&k.Status.Conditions, v1beta1.ConditionSelectorsHeeded)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, registry.LookUpTimeout)
	defer cancel()
	defaults, err := cluster.DefaultStorageClasses(ctx, s.Live)
	setCondition(&k.Status.Conditions, selectorsHeeded(defaults, truncate.Error(err)), k.Generation)
	return true
}

func selectorsHeeded(defaults []metav1.PartialObjectMetadata, err error) metav1.Condition {
	c := met(v1beta1.ConditionSelectorsHeeded, v1beta1.ReasonNoDefaultStorageClass,
		"no StorageClass is the default, so claims without one are bound")
	switch {
	case err != nil:
		c.Status, c.Reason = metav1.ConditionUnknown, v1beta1.ReasonNotSynced
		if apierrors.IsForbidden(err) {
			c.Reason = v1beta1.ReasonNotPermitted
		}
		c.Message = fmt.Sprintf("cannot tell whether there is a default StorageClass: %v", err)
	case len(defaults) > 0:
		of := ""
		if len(defaults) > 1 {
			of = fmt.Sprintf(" the newest of %d,", len(defaults))
		}
		c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonDefaultStorageClass
		c.Message = fmt.Sprintf("the API server gives every claim without a StorageClass the default one, %q,%s before classbind is "+
			"asked, so its class selector does nothing: %s", defaults[0].Name, of, cluster.UnmarkStorageClasses(defaults))
	}
	return c
}

// describePaths writes into the status whether the paths are valid, and what the schema requires. Until
// they are compared, that of the last leader stays.
func (s *Writer) describePaths(k *v1beta1.ClaimKind, view *selector.View) {
	if paths, known := s.Registration.PathsOf(k); known {
		k.Status.Required, k.Status.SelectorAbsent = paths.Check.Required, paths.Check.SelectorAbsent
		setCondition(&k.Status.Conditions, paths.Condition(view), k.Generation)
	}
}
