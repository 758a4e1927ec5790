package selector

import (
	"fmt"
	"maps"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// PolicyDefault is the class that every claim without an opinion gets: a MutatingAdmissionPolicy
// can give it to them. Its conditions see the claim and that class, and nothing else. So
// there is a fault instead where anything else decides.
func (v *View) PolicyDefault() (*inventory.Class, *inventory.Fault) {
	if v.Fault != nil {
		return nil, v.Fault
	}
	if why := v.needsWebhook(); why != "" {
		return nil, inventory.Faultf(v1beta1.ReasonNeedsWebhook, "%s", why)
	}
	defaults := v.DefaultsOf(inventory.Seat{ClaimKind: v.Kind.Name})
	switch len(defaults) {
	case 0:
		return nil, inventory.Faultf(v1beta1.ReasonNoDefault, "no class is marked default")
	case 1:
	default:
		return nil, inventory.Faultf(v1beta1.ReasonSeveralDefaults, "%d classes are marked default", len(defaults))
	}
	c := defaults[0]
	if why := classNeedsWebhook(c, v.Kind.Strategy.Weighted); why != "" {
		return nil, inventory.Faultf(v1beta1.ReasonNeedsWebhook, "%s", why)
	}
	i, _ := v.Kind.firstDrop(subject{}, c) // It fails for expressions alone, and there are none.
	switch {
	case i < 0:
		return c, nil
	case v.Kind.filters[i].reason == reasonCordoned:
		return nil, inventory.Faultf(v1beta1.ReasonDefaultCordoned, "the default class %s is cordoned", c)
	case v.Kind.filters[i].reason == reasonWeightZero:
		return nil, inventory.Faultf(v1beta1.ReasonWeightZero, "the default class %s has the weight 0", c)
	}
	return nil, inventory.Faultf(v1beta1.ReasonNeedsWebhook, "the default class %s is %s", c, v.Kind.filters[i].text)
}

// needsWebhook says why only classbind can tell which class a claim without an opinion gets;
// empty, the API server can tell, too.
func (v *View) needsWebhook() string {
	k := v.Kind
	switch {
	case !k.IsEmpty():
		return "an expression of the ClaimKind decides"
	case k.WhenNoSelector == v1beta1.NoSelectorAny || k.WhenNoSelector == v1beta1.NoSelectorLeaveAlone:
		return fmt.Sprintf("with selector.whenAbsent %s, a claim without a selector does not get the default class", k.WhenNoSelector)
	case k.LeavesAbsent:
		return "with reference.whenAbsent LeaveAlone, a claim without a reference does not get the default class"
	case len(k.Precedence) > 0:
		return "with classes.precedence Listed, a class of another kind may have the name of the default class"
	case k.Annotates:
		return "with choice.annotate Decision, a claim is annotated with the time, which the API server does not tell a policy"
	case k.Strategy.Name == v1beta1.RoundRobin:
		return "with RoundRobin, classbind has to know which class it gave last"
	case k.Own() && slices.ContainsFunc(v.Classes, func(s *inventory.Classes) bool { return s.Kind.Namespaced }):
		return "each namespace may have a default class of its own"
	}
	return ""
}

// classNeedsWebhook says why the API server cannot tell whether a class is the default; empty, it can.
func classNeedsWebhook(c *inventory.Class, weighted bool) string {
	r := c.Kind.ForClaims
	if len(r.Fits) > 0 || r.OfferWhen != nil || r.IsDefault != nil || weighted && r.Weight != nil {
		return fmt.Sprintf("an expression of the ClassKind %q decides", c.Kind.Name)
	}
	return ""
}

// OrderMatters is the fault that another kind of the same claims looks where this one has its
// reference, or the other way round, nil if none does. Webhooks are called in the order of
// their names. Policies come before all of them, in no order.
func (s Snapshot) OrderMatters(k *ClaimKind) *inventory.Fault {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		o := s[name].Kind
		if name == k.Name || o.resource != k.resource || s[name].Conflict != nil {
			continue
		}
		if k.ReadsReferenceOf(o.Reader) || o.ReadsReferenceOf(k.Reader) {
			return inventory.Faultf(v1beta1.ReasonNeedsWebhook,
				"claim kind %q is for the same claims, and the reference of one of the two matters to the other", name)
		}
	}
	return nil
}
