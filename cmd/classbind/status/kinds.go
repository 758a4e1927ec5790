package status

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/registry"
)

// checkKinds says which registered kinds are not ready, and why.
func checkKinds(_ context.Context, i *installation, s *Section) {
	ready := 0
	add := func(where string, conditions []metav1.Condition) {
		if meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) {
			ready++
		}
		s.kind(where, i.served[where].err, conditions)
	}
	for n := range i.claimKinds {
		add("claimkind/"+i.claimKinds[n].Name, i.claimKinds[n].Status.Conditions)
	}
	for n := range i.classKinds {
		add("classkind/"+i.classKinds[n].Name, i.classKinds[n].Status.Conditions)
	}
	s.Summary = fmt.Sprintf("%d of %d ready", ready, len(i.claimKinds)+len(i.classKinds))
	if len(i.claimKinds) == 0 {
		s.note("no claim kind is registered: create a ClaimKind")
	}
}

// kind finds what is wrong with a registration. err says why its resource is not served.
func (s *Section) kind(where string, err error, conditions []metav1.Condition) {
	switch {
	case registry.NotInstalledOrUnsuitable(err):
		s.found(where, "install the CRD, or remove the registration: kubectl delete "+where, "%v", err)
		return
	case err != nil:
		s.unread("the resource of "+where, err)
	case len(conditions) == 0:
		s.found(where, "see the section replicas", "no leader has looked at it")
	}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		s.condition(where, c) // The others follow from it, or do not matter yet.
		return
	}
	for n := range conditions {
		c := &conditions[n]
		switch {
		case c.Status != metav1.ConditionFalse:
		case c.Type == v1alpha1.ConditionSingleDefault, c.Type == v1alpha1.ConditionWeightsValid: // They have sections of their own.
		default:
			s.condition(where, c)
		}
	}
}

func (s *Section) condition(where string, c *metav1.Condition) {
	do := map[string]string{
		v1alpha1.ReasonNotInstalled:     "install the CRD, or remove the registration: kubectl delete " + where,
		v1alpha1.ReasonNotPermitted:     permit,
		v1alpha1.ReasonNotSynced:        "see the sections replicas and webhook entries",
		v1alpha1.ReasonStale:            "see why the API server does not list these classes: it may be an aggregated one",
		v1alpha1.ReasonClassKindMissing: "see what is wrong with the class kind that the message names",
	}[c.Reason]
	if do == "" {
		do = "change what the message names: kubectl edit " + where
	}
	s.found(where, do, "%s is False (%s): %s", c.Type, c.Reason, c.Message)
}
