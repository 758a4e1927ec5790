package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/truncate"
)

// explainClass says which class a claim has, what is the matter with it, and which it would get today, and why: it is never bound again.
// today shows that decision in full, for a claim of the cluster.
func (o *options) explainClass(
	ctx context.Context, w *world.World, v *world.Kind, k *v1beta1.ClaimKind, item *Item, object map[string]any, today bool,
) {
	unbound := runtime.DeepCopyJSON(object) // The claim is validated as it is.
	unsure := v.Unbind(ctx, unbound, managedFields(object))
	in, err := readAsServer(v.View.Kind, item, unbound)
	if err != nil {
		item.noteUnknown(err)
		return
	}
	item.noteClass(v, object, in)
	named := v.View.Kind.Reader.ReadNamed(item.Claim.Namespace, item.Claim.Name, object)
	err = cmp.Or(v.AddRequester(ctx, &in), v.AddRequester(ctx, &named))
	if err == nil && v.View.Kind.Rules.UsesRequest() && in.Request == nil {
		err = errors.New("the expressions of the claim kind look at who creates the claim: say who with --requester NAME")
	}
	if err != nil {
		item.noteUnknown(err)
		return
	}
	decider := w.Decider(o.fresh, nil)
	_, refused, unchecked := decider.Check(ctx, v.View, named, object, nil)
	if refused != nil {
		o.refuse(item, refused, k.Spec.Reference.Explicit == v1beta1.CheckExplicit)
	}
	again, err := decider.Explain(ctx, v.View, in)
	if unchecked != nil && err == nil {
		item.note("whether the claim may have its class is unknown: %v", truncate.Error(unchecked))
	}
	switch {
	case err != nil:
		item.noteUnknown(err)
	case today && item.Reason == claim.Settled && v.View.Kind.Reader.Reference.GivenByAuthor(object, managedFields(object)):
		item.Message = "its author, or who restored it, set ." + v.View.Kind.Reader.Reference.Path.String()
		item.hintsUnbound = true
	case !again.Decision.Drawn() || again.Decision.Unneeded():
	case today && item.Reason == claim.Settled:
		item.today(again)
		item.Notes = append(item.Notes, unsure...)
	case again.Decision.Class == nil:
		item.note("created now, it would get none: %s", again.Decision.Warning())
	default:
		item.note("created now, it would get %q, %s", again.Decision.Class, because(&again))
		item.Notes = append(item.Notes, unsure...)
	}
}

// noteUnknown notes why explain does not say which class a claim that has one would get.
func (i *Item) noteUnknown(err error) {
	i.note("which class it would get now is unknown: %v", truncate.Error(err))
}

// noteClass notes what is the matter with the class that a claim has, and why it got that. in is the claim without its class.
func (i *Item) noteClass(v *world.Kind, object map[string]any, in claim.Intake) {
	class, missing := v.View.Kind.Demand.ClassOf(v.Serving, i.Claim.Namespace, object)
	if class != nil {
		i.Has = new(selector.NameOf(class))
	}
	switch {
	case i.Reason != claim.Settled:
	case missing != "":
		i.note("its class %q is not there: create the class, or delete the claim and create it again to get another", missing)
	case class == nil || in.Selector == nil || class.TooManyLabels:
	case !in.Selector.Matches(class.Labels):
		i.note("its class %q does not match its selector %q: a claim is bound once, so delete it and create it again to get another",
			class, in.Selector)
	}
	text, _, _ := unstructured.NestedString(object, "metadata", "annotations", v1beta1.DecisionAnnotation)
	was := selector.Record{}
	if json.Unmarshal([]byte(text), &was) == nil {
		of := ""
		if was.Candidates > 0 {
			of = fmt.Sprintf("one of %d candidates, ", was.Candidates)
		}
		i.note("it was bound to %q: %s, %sby %s", was.Class, was.Reason, of, was.Strategy)
	}
}

// refuse says why a claim may not name its class. If that is checked, a claim of a file is refused.
func (o *options) refuse(item *Item, refused *selector.Refused, isChecked bool) {
	switch {
	case isChecked && len(o.files) > 0:
		item.end(Unmatched, refused.Reason, fmt.Sprintf("%v; it is refused, because reference.explicit is Check", refused))
	case isChecked: // It is there nevertheless.
		item.note("%v; it is refused, because reference.explicit is Check", refused)
	case refused.Reason != "NotFound": // That is noted already.
		item.note("%v; this is not checked, because reference.explicit is not Check", refused)
	}
}

// today shows the decision that a claim which has a class would get now.
func (i *Item) today(e selector.Explanation) {
	d := &e.Decision
	i.again, i.Explanation, i.OddsDependOn = true, e, d.View.Kind.Strategy.Depends
	if d.Claim.Selector != nil {
		i.Selector = new(d.Claim.Selector.String())
	}
	if d.Class == nil {
		i.Message = d.Warning()
		return
	}
	i.Message = because(&e)
	if !isCertain(&e) {
		return
	}
	i.Today = new(selector.NameOf(d.Class))
	for n := range i.Explanation.Candidates {
		i.Explanation.Candidates[n].Chosen = i.Explanation.Candidates[n].Class == d.Class
	}
}

// headlineOfClass says which class a claim of the cluster has, and which it would get today.
func (i *Item) headlineOfClass() string {
	has := "has a class"
	if i.Has != nil {
		has = "has " + i.Has.String()
	}
	switch {
	case !i.again:
		return has
	case i.Explanation.Decision.Class == nil:
		return has + "; created now, it would get none"
	case i.Today == nil:
		return has + "; created now, it would get " + i.drawn()
	case i.Has != nil && *i.Has == *i.Today:
		return has + ", and would get the same today"
	}
	return has + "; created now, it would get " + i.Today.String()
}
