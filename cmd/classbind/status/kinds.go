package status

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
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
	for _, k := range i.claimKinds {
		add("claimkind/"+k.Name, k.Status.Conditions)
		single := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionSingleDefault)
		if single != nil && single.Reason == v1beta1.ReasonNoDefault &&
			cmp.Or(k.Spec.Selector.WhenAbsent, v1beta1.NoSelectorDefault) == v1beta1.NoSelectorDefault {
			noDefault = append(noDefault, k.Name)
		}
	}
	if len(noDefault) > 0 {
		s.note("no class is marked default, so claims without a selector find no class: claim kinds %s", selector.List(noDefault))
	}
	for _, k := range i.classKinds {
		add("classkind/"+k.Name, k.Status.Conditions)
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
	for _, c := range all {
		text := fmt.Sprintf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
		switch {
		case c.Status == metav1.ConditionFalse && follows(&c, all):
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
	because := map[string]string{
		v1beta1.ReasonInvalidExpression: v1beta1.ConditionExpressionsValid,
		v1beta1.ReasonRelatedMissing:    v1beta1.ConditionRelatedKnown,
		v1beta1.ReasonNoClassKind:       v1beta1.ConditionClassKindsRead,
	}[c.Reason]
	switch {
	case c.Type == v1beta1.ConditionGuarded, c.Type == v1beta1.ConditionLateBinding, c.Type == v1beta1.ConditionClaimsCounted:
		because = v1beta1.ConditionReady
	case c.Type != v1beta1.ConditionReady:
		return false
	case selector.OfPaths(c.Reason):
		because = v1beta1.ConditionPathsValid
	}
	return meta.IsStatusConditionFalse(all, because)
}

// checkEntries reports whether the API server asks classbind about every registered kind. What an entry
// says is for the leader, which undoes every edit.
func checkEntries(_ context.Context, i *installation, s *Section) {
	if i.entriesErr != nil {
		s.unread("the webhook configurations", i.entriesErr)
		s.Summary = notRead
		return
	}
	for _, name := range configurations {
		if i.entries[name] == nil {
			s.found("webhook configuration "+name, "kubectl apply -k deploy", "there is no such configuration")
		}
	}
	ofClaims, ofClasses, gone := 0, 0, len(s.Findings) > 0
	missing := func(where, what string) {
		if !gone { // Else it follows from that.
			s.found(where, "the leader writes it: see the sections replicas and kinds, and kubectl describe "+where,
				"%s: there is no webhook entry", what)
		}
	}
	for _, k := range i.claimKinds {
		switch {
		case i.entries.ClaimEntry(k.Name) != nil:
			ofClaims++
		case isTrue(k.Status.Conditions, v1beta1.ConditionReady):
			missing("claimkind/"+k.Name, "claims are not bound")
		}
	}
	for _, k := range i.classKinds {
		switch {
		case i.entries.ClassEntry(k.Name) != nil:
			ofClasses++
		case isTrue(k.Status.Conditions, v1beta1.ConditionGuarded):
			missing("classkind/"+k.Name, "a second default class is not refused")
		}
	}
	s.Summary = fmt.Sprintf("%d for claims, %d for classes", ofClaims, ofClasses)
}

// isTrue leaves it to the section of kinds to say why a condition is not.
var isTrue = meta.IsStatusConditionTrue
