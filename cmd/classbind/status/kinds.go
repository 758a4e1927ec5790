package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/rules"
)

// checkKinds reports what the conditions of registrations say, which a leader wrote.
func checkKinds(ctx context.Context, i *installation, s *Section) {
	ready, readyAndWrong := 0, 0
	add := func(where string, conditions []metav1.Condition) {
		before, isReady := len(s.Findings), isTrue(conditions, v1beta1.ConditionReady)
		if s.conditions(where, conditions); isReady {
			ready++
		}
		if isReady && len(s.Findings) > before {
			readyAndWrong++
		}
	}
	var noDefault []string
	for _, k := range i.ClaimKinds {
		add("claimkind/"+k.Name, k.Status.Conditions)
		i.weightlessDefaults(ctx, &k, s)
		single := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionSingleDefault)
		if single != nil && single.Reason == v1beta1.ReasonNoDefault &&
			cmp.Or(k.Spec.Selector.WhenAbsent, v1beta1.NoSelectorDefault) == v1beta1.NoSelectorDefault {
			noDefault = append(noDefault, k.Name)
		}
	}
	if len(noDefault) > 0 {
		s.note("no class is marked default, so claims without a selector find no class: claim kinds %s", selector.List(noDefault))
	}
	for _, k := range i.ClassKinds {
		add("classkind/"+k.Name, k.Status.Conditions)
		if _, err := i.ClassKind(ctx, &k).Classes(); err != nil && !world.NotServed(err) { // Else a condition says so.
			s.unread("the classes of "+k.Name, err)
		}
	}
	s.Summary = fmt.Sprintf("%d of %d ready", ready, len(i.ClaimKinds)+len(i.ClassKinds))
	if readyAndWrong > 0 {
		s.Summary += fmt.Sprintf(", of which %d with something wrong", readyAndWrong)
	}
	if i.leaderErr == nil && !i.leads && !i.needsNoLease() {
		s.Summary += ", as the last leader wrote"
	}
	if len(i.ClaimKinds) == 0 {
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
		case c.Type == v1beta1.ConditionReady && c.Reason == v1beta1.ReasonNotInstalled,
			c.Type == v1beta1.ConditionLetsClustersStart:
			s.note("%s: %s", where, text) // Its CRD may come later, or the cluster does not start now.
		case c.Status == metav1.ConditionFalse, c.Reason == v1beta1.ReasonDefaultCordoned:
			s.found(where, "", "%s", text)
		case c.Status == metav1.ConditionUnknown,
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
func (i *installation) weightlessDefaults(ctx context.Context, k *v1beta1.ClaimKind, s *Section) {
	kind := selector.NewClaimKind(k, rules.Serving(k, i.ClassKinds)...)
	all, _ := i.classesOf(ctx, k)
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

const (
	mutating   = "mutatingwebhookconfigurations"
	validating = "validatingwebhookconfigurations/" + v1beta1.ClassConfiguration
)

// checkEntries reports whether the API server asks classbind about every registered kind. What an entry
// says is for the leader, which undoes every edit.
func checkEntries(_ context.Context, i *installation, s *Section) {
	if known(i.claimEntriesErr, mutating, s) {
		for _, name := range []string{v1beta1.FirstConfiguration, v1beta1.LastConfiguration} {
			if i.claimEntries[name] == nil {
				notDeployed(mutating+"/"+name, s)
			}
		}
		for _, k := range i.ClaimKinds {
			in, ready := k.Spec.Admission.Order.Configuration(), isTrue(k.Status.Conditions, v1beta1.ConditionReady)
			if ready && i.claimEntries[in] != nil && i.claimEntries.ClaimEntry(k.Name) == nil {
				s.found(mutating+"/"+in, missingEntry("claimkind/"+k.Name), "claims of %s are not bound: it has no entry", k.Name)
			}
		}
	}
	if known(i.classEntriesErr, validating, s) {
		for _, k := range i.ClassKinds {
			guards := func(e admissionregistrationv1.ValidatingWebhook) bool { return e.Name == k.Name+v1beta1.GuardSuffix }
			if isTrue(k.Status.Conditions, v1beta1.ConditionGuarded) && !slices.ContainsFunc(i.classEntries.Webhooks, guards) {
				s.found(validating, missingEntry("classkind/"+k.Name),
					"a second default class of %s is not refused: it has no entry", k.Name)
			}
		}
	}
	count := func(entries int, err error, of string) string {
		if client.IgnoreNotFound(err) != nil {
			return notRead + " " + of
		}
		return fmt.Sprintf("%d %s", entries, of)
	}
	ofClasses := slices.DeleteFunc(slices.Clone(i.classEntries.Webhooks), func(e admissionregistrationv1.ValidatingWebhook) bool {
		return e.Name == v1beta1.RegistrationEntry
	})
	s.Summary = count(len(i.claimEntries.Entries()), i.claimEntriesErr, "for claims") + ", " +
		count(len(ofClasses), i.classEntriesErr, "for classes")
}

// isTrue leaves it to the section of kinds to say why a condition is not.
var isTrue = meta.IsStatusConditionTrue

func known(err error, where string, s *Section) bool {
	switch {
	case apierrors.IsNotFound(err):
		notDeployed(where, s)
	case err != nil:
		s.unread(where, err)
	}
	return err == nil
}

func notDeployed(where string, s *Section) {
	s.found(where, "apply the manifests of classbind again: "+lookup.InstallPage, "there is no such configuration")
}

func missingEntry(registration string) string {
	return "the leader writes it: see the sections replicas and kinds, and kubectl describe " + registration
}
