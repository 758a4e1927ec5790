package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
)

// checkKinds reports which registered kinds are not ready, and what is wrong with their classes.
// All that is known of this is what a leader wrote.
func checkKinds(_ context.Context, i *installation, s *Section) {
	ready := 0
	add := func(where string, conditions []metav1.Condition) {
		if meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) {
			ready++
		}
		i.kind(where, conditions, s)
	}
	for n := range i.claimKinds {
		add("claimkind/"+i.claimKinds[n].Name, i.claimKinds[n].Status.Conditions)
		i.weightlessDefaults(&i.claimKinds[n], s)
	}
	for n := range i.classKinds {
		name := i.classKinds[n].Name
		add("classkind/"+name, i.classKinds[n].Status.Conditions)
		if err := i.classesErr[name]; err != nil {
			s.unread("the classes of "+name, err)
		}
	}
	s.Summary = fmt.Sprintf("%d of %d ready", ready, len(i.claimKinds)+len(i.classKinds))
	if i.leaderErr == nil && !i.leads && !i.needsNoLease() {
		s.Summary += ", as the last leader wrote"
	}
	if len(i.claimKinds) == 0 {
		s.note("no claim kind is registered: create a ClaimKind")
	}
}

// kind finds what is wrong with a registration.
func (i *installation) kind(where string, conditions []metav1.Condition, s *Section) {
	err := i.served[where].err
	switch {
	case registry.NotInstalledOrUnsuitable(err):
		s.found(where, remedy(where, registry.ReasonFor(err)), "%v", err)
		return
	case err != nil:
		s.unread("the resource of "+where, err)
	case len(conditions) == 0:
		s.found(where, "see the section replicas", "no leader has looked at it")
	}
	follow := following(conditions)
	for n := range conditions {
		c := &conditions[n]
		switch {
		case slices.Contains(follow, c.Type):
		case c.Reason == v1alpha1.ReasonNotPermitted && i.isLacked(where): // The section of rights says which.
		case c.Type == v1alpha1.ConditionDefaultedByPolicy && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonNotPermitted:
			s.note("%s: %s (%s)", where, c.Message, c.Reason) // Claims are bound all the same.
		case c.Type == v1alpha1.ConditionClassKindsRead && c.Status == metav1.ConditionFalse:
			s.found(where, "do what the message says: until then, claims are decided on without these classes",
				"%s is False (%s): %s", c.Type, c.Reason, c.Message)
		case c.Status == metav1.ConditionFalse:
			s.found(where, remedy(where, c.Reason), "%s is False (%s): %s", c.Type, c.Reason, c.Message)
		case c.Reason == v1alpha1.ReasonDefaultCordoned:
			s.found(where, "run the command of the message, or make another class the default: "+setDefault(where), "%s", c.Message)
		case c.Reason == v1alpha1.ReasonNoDefault && meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady):
			s.note("%s: %s (%s)", where, c.Message, c.Reason)
		case c.Status == metav1.ConditionUnknown,
			(c.Type == v1alpha1.ConditionReady || c.Type == v1alpha1.ConditionRelatedKnown) && c.Reason != v1alpha1.ReasonServed:
			s.note("%s: %s is %s (%s): %s", where, c.Type, c.Status, c.Reason, c.Message)
		}
	}
}

// following returns the conditions that follow from another.
func following(conditions []metav1.Condition) []string {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil || ready.Status != metav1.ConditionFalse:
		return nil
	case ready.Reason == v1alpha1.ReasonNoClassKind && meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionClassKindsRead):
		return []string{v1alpha1.ConditionReady, v1alpha1.ConditionLateBinding, v1alpha1.ConditionClaimsCounted}
	case selector.OfPaths(ready.Reason) && meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionPathsValid),
		ready.Reason == v1alpha1.ReasonInvalidExpression && meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionExpressionsValid),
		ready.Reason == v1alpha1.ReasonRelatedMissing && meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionRelatedKnown):
		return []string{v1alpha1.ConditionReady, v1alpha1.ConditionGuarded, v1alpha1.ConditionLateBinding, v1alpha1.ConditionClaimsCounted}
	}
	return []string{v1alpha1.ConditionGuarded, v1alpha1.ConditionLateBinding, v1alpha1.ConditionClaimsCounted}
}

// weightlessDefaults finds default classes that no claim gets for their weight, which no condition reports.
func (i *installation) weightlessDefaults(k *v1alpha1.ClaimKind, s *Section) {
	kind := selector.NewClaimKind(k, selector.Naming(k.Name, i.classKinds)...)
	all, _ := i.classesOf(k)
	names := map[string]bool{}
	for _, defaults := range selector.NewView(kind, all).DefaultsBySeat() {
		for _, c := range defaults {
			if c.Weight == 0 && kind.Strategy.Weighted {
				names[c.String()] = true
			}
		}
	}
	if len(names) > 0 {
		s.found("claimkind/"+k.Name, "give it a weight, or make another class the default: "+setDefault("claimkind/"+k.Name),
			"with %s, no claim gets a default class of weight 0: %s", kind.Strategy.Name, selector.List(slices.Sorted(maps.Keys(names))))
	}
}

// setDefault is the command that sets the default class of a claim kind.
func setDefault(where string) string {
	return "classbind set-default KIND/NAME --for " + strings.TrimPrefix(where, "claimkind/")
}

// remedy is what to do about a condition.
func remedy(where, reason string) string {
	do := map[string]string{
		v1alpha1.ReasonNotInstalled:        "install the CRD, or remove the registration: kubectl delete " + where,
		v1alpha1.ReasonUnsuitable:          "register another kind instead: kubectl delete " + where,
		v1alpha1.ReasonNotPermitted:        permit,
		v1alpha1.ReasonNoClassKind:         "do what the message says: until then, claims are created without a class",
		v1alpha1.ReasonNotSynced:           "see the sections replicas and webhook entries",
		v1alpha1.ReasonNotConfigured:       "see the sections replicas and webhook entries",
		v1alpha1.ReasonStale:               "see why the API server does not list these classes: it may be an aggregated one",
		v1alpha1.ReasonClassKindMissing:    "see what is wrong with the class kind that the message names",
		v1alpha1.ReasonTooLarge:            "shorten or remove registrations, until there is room",
		v1alpha1.ReasonRelatedMissing:      "see the section replicas: classbind has not listed the related objects yet",
		v1alpha1.ReasonExpressionFailed:    "mend the classes that the message names, or the expression: kubectl edit " + where,
		v1alpha1.ReasonMalformedMark:       "write true or false, or take the mark from the classes that the message names",
		v1alpha1.ReasonMalformedWeight:     "write an integer from 0 to 1000000 into the classes that the message names",
		v1alpha1.ReasonTooManyLabels:       "take labels from the classes that the message names",
		v1alpha1.ReasonSeveralDefaults:     "choose one of the classes: " + setDefault(where),
		v1alpha1.ReasonDefaultStorageClass: "run the command of the message, or remove the registration: kubectl delete " + where,
	}[reason]
	if do == "" {
		do = "change what the message names: kubectl edit " + where
	}
	return do
}
