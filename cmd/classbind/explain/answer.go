package explain

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// answer for a claim that was created now. First come the reasons for which the API
// server does not ask, then the decision.
func (o *options) answer(ctx context.Context, r *registrations, d document, namespace string) (*Item, error) {
	gvk := d.GroupVersionKind()
	item := &Item{Claim: Claim{
		APIVersion: d.GetAPIVersion(), Kind: d.GetKind(), Namespace: d.GetNamespace(), Name: d.GetName(), Source: d.where,
	}}
	k, found, err := r.claimKind(ctx, gvk.GroupKind())
	if err != nil {
		return nil, err
	}
	if k == nil {
		if o.strict {
			if mistake := item.unregistered(ctx, r, gvk); mistake != nil {
				return mistake, nil
			}
		}
		return item.leftAlone("NotRegistered", "no ClaimKind registers this kind"), nil
	}
	item.Claim.ClaimKind = k.Name
	switch {
	case !found.namespaced && !found.guessed:
		item.Claim.Namespace = ""
	case item.Claim.Namespace == "":
		item.Claim.Namespace = namespace
	}
	object := d.DeepCopy().Object
	var schema *objectSchema
	if o.strict {
		if schema = item.check(ctx, r, k, found, object); item.Outcome == Malformed {
			return item, nil
		}
	}
	if o.unbound {
		unstructured.RemoveNestedField(object, k.Spec.Reference.Place().Names()...)
	}
	decision, err := o.decide(ctx, r, k, item, object, found)
	if err != nil || schema == nil {
		return item, err
	}
	return item.asStored(ctx, schema, decision, object), nil
}

// decide on a claim. The decision is empty if the claim is not ours to bind, or nothing can be decided.
func (o *options) decide(
	ctx context.Context, r *registrations, k *v1alpha1.ClaimKind, item *Item, object map[string]any, found resource,
) (d selector.Decision, err error) {
	if why, err := r.unselected(ctx, k, item.Claim.Namespace); err != nil || why != "" {
		item.leftAlone("NamespaceNotSelected", why)
		return d, err
	}
	v, err := r.view(ctx, k)
	if err != nil {
		return d, err
	}
	item.Notes = append(item.Notes, v.notes...)
	if version := found.GroupVersion().String(); version != item.Claim.APIVersion {
		item.note("the claim is read as it is, of %s: the API server would convert it to %s, which it prefers",
			item.Claim.APIVersion, version)
	}
	item.decideBy(k)
	decider := &selector.Decider{Fresh: o.fresh}
	e, err := decider.Explain(ctx, v.View, v.Kind.Read(item.Claim.Namespace, item.Claim.Name, object))
	claim, fault := e.Decision.Claim, (*selector.Fault)(nil)
	switch {
	case errors.As(err, &fault):
		item.undecided(k, fault)
		return d, nil
	case err != nil:
		return d, err
	case claim.LeftAlone == selector.BeingDeleted:
		item.leftAlone(claim.LeftAlone, "the claim is being deleted")
		return d, nil
	case claim.LeftAlone != "":
		why := ""
		switch claim.LeftAlone {
		case selector.ParentAbsent:
			why = "the parent of " + v.Kind.ReferencePath() + " is absent, and whenParentAbsent is LeaveAlone"
		case selector.NoSelector:
			why = "the claim has no class selector, and whenNoSelector is LeaveAlone"
		default:
			why = claim.SettledBy + " is set"
			if v.Kind.HasReference(object) {
				why += "; --unbound explains the claim as if it was not"
				item.compareClass(v, k.Spec.Reference.Place(), object)
			}
		}
		item.leftAlone(claim.LeftAlone, why)
		return d, nil
	case len(claim.Problems) > 0:
		item.malformed(claim.Problems)
		return d, nil
	}
	item.explained(k, e)
	return e.Decision, nil
}

// compareClass notes that the class of a claim is not there, or does not match what the
// claim asks for now: nobody binds it again.
func (i *Item) compareClass(v *view, classRef v1alpha1.Place, object map[string]any) {
	class, missing := v.Kind.ClassOf(v.all, i.Claim.Namespace, object)
	unbound := runtime.DeepCopyJSON(object) // The claim is validated as it is.
	unstructured.RemoveNestedField(unbound, classRef.Names()...)
	claim := v.Kind.Read(i.Claim.Namespace, i.Claim.Name, unbound)
	switch {
	case missing != "":
		i.note("its class %q is not there: create the class, or delete the claim and create it again to get another", missing)
	case class == nil || claim.Selector == nil || class.TooManyLabels:
	case !claim.Selector.Matches(class.Labels):
		i.note("its class %q does not match its selector %q: a claim is bound once, so delete it and create it again to get another",
			class, claim.Selector)
	}
}

// undecided says what happens to a claim whose registration is at fault.
func (i *Item) undecided(k *v1alpha1.ClaimKind, fault *selector.Fault) *Item {
	policy := "refused, because failurePolicy is " + string(k.Spec.FailurePolicy)
	if k.Spec.FailurePolicy == v1alpha1.Ignore {
		policy = "created without a class, because failurePolicy is Ignore"
	}
	return i.end(Undecided, fault.Reason, fmt.Sprintf("%v; until then such claims are %s", fault, policy))
}

// explained tells a decision.
func (i *Item) explained(k *v1alpha1.ClaimKind, e selector.Explanation) *Item {
	i.add(e)
	d := e.Decision
	if d.Class != nil {
		return i.end(Bound, d.Reason(), because(e))
	}
	after := map[v1alpha1.WhenUnmatched]string{
		v1alpha1.Admit:     "it is created without a class",
		v1alpha1.Deny:      "it is refused",
		v1alpha1.BindLater: "it is created without a class",
	}[k.Spec.WhenUnmatched]
	if after == "" {
		after = "whenUnmatched is " + string(k.Spec.WhenUnmatched)
	}
	if d.Denied() {
		after = "it is refused"
	}
	i.Warning = "" // It is the message.
	return i.end(Unmatched, d.Reason(), d.Warning()+"; "+after)
}

// because says why the class was drawn.
func because(e selector.Explanation) string {
	d := e.Decision
	kind, n := d.View.Kind, len(e.Candidates)
	one, is, matches := fmt.Sprintf("one of %d classes that", n), "are", "match"
	if n == 1 {
		one, is, matches = "the only class that", "is", "matches"
	}
	text := fmt.Sprintf("%s %s the selector %q", one, matches, d.Claim.Selector)
	switch {
	case kind.Asks(d.Claim.Claim) == nil:
		text = fmt.Sprintf("%s %s marked default, and the claim has no class selector", one, is)
	case d.Claim.Selector == nil:
		text = fmt.Sprintf("%s %s there, and a claim without a class selector gets any, because whenNoSelector is Any", one, is)
	case d.Claim.Selector.Empty():
		text = fmt.Sprintf("%s %s there, and the selector {} asks for any", one, is)
	}
	switch {
	case n == 1:
	case kind.Strategy.Depends != "":
		text += fmt.Sprintf("; which one %s draws depends on %s", kind.Strategy.Name, kind.Strategy.Depends)
	case e.Reproducible && e.Candidates[0].Odds.Share == e.Candidates[0].Odds.Total:
		text += fmt.Sprintf("; %s takes it", kind.Strategy.Name)
	case e.Reproducible:
		text += fmt.Sprintf("; %s drew it, seeded with the claim's name, so that this claim gets it every time", kind.Strategy.Name)
	case d.Claim.Name == "":
		text += fmt.Sprintf("; %s drew it this time, and draws afresh for each claim whose name the API server makes up",
			kind.Strategy.Name)
	default:
		text += fmt.Sprintf("; %s drew it this time, and draws afresh each time, because seed is Request", kind.Strategy.Name)
	}
	return text
}
