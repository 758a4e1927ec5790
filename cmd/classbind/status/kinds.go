package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/rules"
)

// checkKinds reports what the conditions of registrations say, which a leader wrote.
func checkKinds(_ context.Context, i *installation, s *Section) {
	ready := 0
	add := func(where string, conditions []metav1.Condition) {
		if isTrue(conditions, v1beta1.ConditionReady) {
			ready++
		}
		s.conditions(where, conditions)
	}
	var noDefault []string
	for n := range i.claimKinds {
		k := &i.claimKinds[n]
		add("claimkind/"+k.Name, k.Status.Conditions)
		i.weightlessDefaults(k, s)
		single := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionSingleDefault)
		if single != nil && single.Reason == v1beta1.ReasonNoDefault &&
			cmp.Or(k.Spec.Selector.WhenAbsent, v1beta1.NoSelectorDefault) == v1beta1.NoSelectorDefault {
			noDefault = append(noDefault, k.Name)
		}
	}
	if len(noDefault) > 0 {
		s.note("no class is marked default, so claims without a selector find no class: claim kinds %s", selector.List(noDefault))
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

// conditions of a registration that are False are findings, and those that may be meant are notes.
func (s *Section) conditions(where string, all []metav1.Condition) {
	if len(all) == 0 {
		s.found(where, "see the section replicas", "no leader has looked at it")
	}
	for n := range all {
		c := &all[n]
		text := fmt.Sprintf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
		switch {
		case c.Status == metav1.ConditionFalse && follows(c, all):
		case c.Type == v1beta1.ConditionDefaultedByPolicy && c.Status == metav1.ConditionFalse && c.Reason != v1beta1.ReasonNotPermitted:
			s.note("%s: %s", where, text) // Claims are bound all the same.
		case c.Status == metav1.ConditionFalse, c.Reason == v1beta1.ReasonDefaultCordoned:
			s.found(where, "", "%s", text)
		case c.Status == metav1.ConditionUnknown, c.Reason == v1beta1.ReasonFull,
			(c.Type == v1beta1.ConditionReady || c.Type == v1beta1.ConditionRelatedKnown) && c.Reason != v1beta1.ReasonServed:
			s.note("%s: %s", where, text)
		}
	}
}

// follows reports whether a condition is False because another one is.
func follows(c *metav1.Condition, all []metav1.Condition) bool {
	because := ""
	switch {
	case c.Type == v1beta1.ConditionGuarded, c.Type == v1beta1.ConditionLateBinding, c.Type == v1beta1.ConditionClaimsCounted:
		because = v1beta1.ConditionReady
	case c.Type != v1beta1.ConditionReady:
	case selector.OfPaths(c.Reason):
		because = v1beta1.ConditionPathsValid
	case c.Reason == v1beta1.ReasonInvalidExpression:
		because = v1beta1.ConditionExpressionsValid
	case c.Reason == v1beta1.ReasonRelatedMissing:
		because = v1beta1.ConditionRelatedKnown
	case c.Reason == v1beta1.ReasonNoClassKind:
		because = v1beta1.ConditionClassKindsRead
	}
	return meta.IsStatusConditionFalse(all, because)
}

// weightlessDefaults finds default classes that no claim gets for their weight, which no condition reports.
func (i *installation) weightlessDefaults(k *v1beta1.ClaimKind, s *Section) {
	kind := selector.NewClaimKind(k, rules.Serving(k, i.classKinds)...)
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
		s.found("claimkind/"+k.Name, "give it a weight, or make another class the default: classbind set-default KIND/NAME --for "+k.Name,
			"with %s, no claim gets a default class of weight 0: %s", kind.Strategy.Name, selector.List(slices.Sorted(maps.Keys(names))))
	}
}
