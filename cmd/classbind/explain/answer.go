package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/truncate"
)

// answers for a claim that was created now, one for each of its ClaimKinds.
func (o *options) answers(ctx context.Context, w *world.World, d world.Document, namespace string) (items []*Item, err error) {
	gvk := d.GroupVersionKind()
	kinds, err := w.ClaimKindsOf(ctx, gvk.GroupKind())
	if err == nil && len(kinds) == 0 {
		return []*Item{newItem(d).notRegistered(ctx, w, gvk)}, nil
	}
	for _, k := range kinds {
		item, err := o.answer(ctx, w, k, d, namespace)
		if err != nil {
			return nil, err
		}
		item.several = len(kinds) > 1
		items = append(items, item)
	}
	return items, err
}

// notRegistered is the end of a claim that no ClaimKind registers. Without CRDs among the files, the kind of a registered resource may be
// unknown. A kind that is not served, or not known and like a registered one, is a mistake.
func (i *Item) notRegistered(ctx context.Context, w *world.World, kind schema.GroupVersionKind) *Item {
	const reason, why = "NotRegistered", "no ClaimKind registers this kind"
	var kinds, unknown []string
	ofGroup := false
	for n := range w.ClaimKinds {
		k := &w.ClaimKinds[n]
		if schema.ParseGroupResource(k.Resource()).Group != kind.Group {
			continue
		}
		ofGroup = true
		found := w.Resource(ctx, k)
		switch {
		case !found.Guessed:
			kinds = append(kinds, found.Kind)
		case found.Kind == "":
			unknown = append(unknown, k.Resource())
		}
	}
	s, err := w.SchemaOf(ctx, kind)
	near := near.Name(kind.Kind, slices.Values(kinds))
	unknownKind := func(message string) *Item {
		return i.mistaken("UnknownKind", world.FieldError{Field: "kind", Reason: "KindUnknown", Message: message})
	}
	switch {
	case slices.ContainsFunc(w.ClassKinds, func(k v1beta1.ClassKind) bool { return world.IsOf(k.Name, kind) }):
		return i.end(LeftAlone, reason, why)
	case near != "" && s == nil && (err == nil || world.NotServed(err)):
		return unknownKind(fmt.Sprintf("%s: did you mean %s?", why, near))
	case len(unknown) > 0 && !scheme.Scheme.IsGroupRegistered(kind.Group): // Kubernetes' own plurals are regular, and have no CRD.
		return i.end(Unmatched, reason, fmt.Sprintf("%s, unless %s of the same group does: "+
			"put the CRD among the files, which names its kind", why, selector.List(unknown)))
	case ofGroup && world.NotServed(err):
		return unknownKind(fmt.Sprintf("%s, and %v", why, err))
	}
	return i.end(LeftAlone, reason, why)
}

// answer for a claim by one of its ClaimKinds. First come the reasons for which the API server does not ask, then the decision.
func (o *options) answer(ctx context.Context, w *world.World, k *v1beta1.ClaimKind, d world.Document, namespace string) (*Item, error) {
	item, found := newItem(d), w.Resource(ctx, k)
	item.Claim.ClaimKind = k.Name
	if item.Claim.Namespace = cmp.Or(item.Claim.Namespace, namespace); !found.Namespaced && !found.Guessed {
		item.Claim.Namespace = ""
	}
	object := d.DeepCopy().Object
	if len(o.files) > 0 { // A claim of the cluster is stored already.
		if item.check(ctx, w, k, d, object); item.Outcome == Malformed {
			return item, nil
		}
	}
	compiled := selector.NewClaimKind(k)
	named := compiled.Reader.Reference.NamesClass(object)
	err := o.decide(ctx, w, k, item, object, d.Stored)
	if item.Outcome == Bound && d.Stored && !o.unbound && !named {
		item.Outcome, item.Do = Unbound, "classbind bind "+k.Name+" "+item.Claim.Name
		if item.Claim.Namespace != "" {
			item.Do += " --namespace " + item.Claim.Namespace
		}
	}
	return item, err
}

// readAsServer reads a claim as the server does: not what is too long or too deep.
func readAsServer(kind *selector.ClaimKind, item *Item, object map[string]any) (in claim.Intake, err error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return in, fmt.Errorf("cannot encode the claim: %w", err)
	}
	read, err := kind.Reader.DecodeValid(raw)
	if err != nil {
		return in, fmt.Errorf("cannot read the claim: %w", err)
	}
	return kind.Reader.Read(item.Claim.Namespace, item.Claim.Name, read), nil
}

func (o *options) decide(
	ctx context.Context, w *world.World, k *v1beta1.ClaimKind, item *Item, object map[string]any, stored bool,
) error {
	if why, err := w.Unselected(ctx, k, item.Claim.Namespace); err != nil || why != "" {
		item.end(LeftAlone, "NamespaceNotSelected", why)
		return err
	}
	if why := lookup.CheckBindable(k); why != nil {
		item.end(LeftAlone, v1beta1.ReasonUnsuitable, why.Error())
		return nil
	}
	v, err := w.Kind(ctx, k)
	if err != nil {
		return err
	}
	v.CountRoom(ctx)
	item.Notes, item.InvalidExpressions = append(item.Notes, v.Notes...), v.Invalid
	found := w.Resource(ctx, k)
	if !item.isReadable(ctx, w, k, found) {
		return nil
	}
	item.Strategy, item.Seed, item.WhenUnmatched = k.Spec.Choice.Strategy, k.Spec.Choice.Seed.From, k.Spec.WhenUnmatched
	if o.unbound && v.View.Kind.Reader.Reference.HasReference(object) { // What an author has set of an empty one stays.
		item.Notes = append(item.Notes, v.Unbind(ctx, object, managedFields(object))...)
	}
	in, err := readAsServer(v.View.Kind, item, object)
	if err != nil {
		return err
	}
	in.Converted = found.GroupVersion().String() != item.Claim.APIVersion
	if err := v.AddRequester(ctx, &in); err != nil {
		return err
	}
	mayBind := in.Object != nil && v.View.Fault == nil && in.LeftAlone == "" && len(in.Problems) == 0
	if mayBind && v.View.Kind.Rules.UsesRequest() && in.Request == nil {
		item.end(Undecided, "RequestUnknown",
			"the expressions of the claim kind look at who creates the claim: say who with --requester NAME")
		return nil
	}
	o.as.noteWithoutEffect(item, k, v.View.Kind.Rules.UsesRequest())
	item.Explanation, err = w.Decider(o.fresh, item.note).Explain(ctx, v.View, in)
	claim, fault := item.Explanation.Decision.Claim, (*inventory.Fault)(nil)
	switch {
	case errors.As(err, &fault) && fault.Reason == v1beta1.ReasonConflict:
		item.end(LeftAlone, fault.Reason, fault.Text)
	case errors.As(err, &fault):
		item.undecided(k, fault)
	case err != nil:
		return err
	case claim.LeftAlone != "":
		has := v.View.Kind.Reader.Reference.HasReference(object)
		item.end(LeftAlone, claim.LeftAlone, item.whyLeftAlone(v, claim, has))
		item.Warning = claim.Ignored
		if has {
			o.explainClass(ctx, w, v, k, item, object, stored && !o.unbound)
		}
	case len(claim.Problems) > 0:
		item.mistaken(malformedClaim, world.FieldErrors(claim.Problems)...)
	default:
		return item.explained(k, object)
	}
	return nil
}

// isReadable reports whether a claim can be read by the paths of its ClaimKind: it is of their version, or nothing but its apiVersion
// changes when the API server converts it.
func (i *Item) isReadable(ctx context.Context, w *world.World, k *v1beta1.ClaimKind, found world.Resource) bool {
	if found.Unread != nil {
		i.undecided(k, &inventory.Fault{Reason: v1beta1.ReasonVersionNotServed, Text: found.Unread.Error()})
		return false
	}
	version := found.GroupVersion().String()
	if version == i.Claim.APIVersion {
		return true
	}
	// A schema that cannot be read does not say that the fields stay as they are.
	if s, err := w.SchemaOf(ctx, found.GroupVersionKind); err != nil || s == nil || !s.Unconverted {
		i.end(Undecided, "OtherVersion", fmt.Sprintf("the claim is of %s, the paths of the ClaimKind are written for %s, and only "+
			"the API server can convert the one to the other: write the claim in %s, or create it with kubectl --dry-run=server",
			i.Claim.APIVersion, version, version))
		return false
	}
	i.note("the API server converts the claim from %s to %s, which changes its apiVersion alone", i.Claim.APIVersion, version)
	return true
}

// whyLeftAlone is the reason for people.
func (i *Item) whyLeftAlone(v *world.Kind, in claim.Intake, hasReference bool) string {
	switch in.LeftAlone {
	case claim.CheckOnly:
		return "classbind checks such claims, and binds none, because reference.list is CheckOnly"
	case claim.BeingDeleted:
		return "the claim is being deleted"
	case claim.ParentAbsent:
		return "the parent of ." + v.View.Kind.Reader.Reference.Path.String() + " is absent, and whenParentAbsent is LeaveAlone"
	case claim.ReferenceAbsent:
		return "." + v.View.Kind.Reader.Reference.Path.String() + " is absent, and reference.whenAbsent is LeaveAlone"
	case claim.NotYet:
		return "not bound now, because " + EvaluationText(i.Explanation.BindWhen)
	case claim.NoSelector:
		return "the claim has no class selector, and selector.whenAbsent is LeaveAlone"
	}
	i.hintsUnbound = hasReference
	return in.SettledBy + " is set"
}

func managedFields(object map[string]any) []metav1.ManagedFieldsEntry {
	return (&unstructured.Unstructured{Object: object}).GetManagedFields()
}

// undecided says what happens to a claim whose registration is at fault.
func (i *Item) undecided(k *v1beta1.ClaimKind, fault *inventory.Fault) {
	policy := "refused, because failurePolicy is " + string(k.Spec.Admission.FailurePolicy)
	if k.Spec.Admission.FailurePolicy == v1beta1.Ignore {
		policy = "created without a class, because failurePolicy is Ignore"
	}
	i.end(Undecided, fault.Reason, fmt.Sprintf("%v; until then such claims are %s", fault, policy))
}

// explained prints a decision, and which class the claim gets, as far as that is known.
func (i *Item) explained(k *v1beta1.ClaimKind, object map[string]any) (err error) {
	d := &i.Explanation.Decision
	if d.Claim.Selector != nil {
		i.Selector = new(d.Claim.Selector.String())
	}
	i.OddsDependOn = d.View.Kind.Strategy.Depends
	candidates := i.Explanation.Candidates
	if isCertain(&i.Explanation) {
		i.Class = new(selector.NameOf(d.Class))
		if i.Reference, err = referenceOf(d, object); err != nil {
			return err
		}
		for n := range candidates {
			candidates[n].Chosen = candidates[n].Class == d.Class
		}
	}
	if d.Class != nil {
		i.Warning = d.Warning()
		i.end(Bound, d.Reason(), because(&i.Explanation))
		return nil
	}
	if d.Unneeded() {
		i.end(LeftAlone, d.Reason(),
			"the claim has no class selector, there is no default class for it, and selector.whenAbsent is DefaultIfAny")
		return nil
	}
	after := "" // For BindLater, the warning mentions that it waits.
	switch {
	case d.Denied(), k.Spec.WhenUnmatched == v1beta1.Deny:
		after = "; it is refused"
	case k.Spec.WhenUnmatched == v1beta1.Admit:
		after = "; it is created without a class"
	}
	i.end(Unmatched, d.Reason(), d.Warning()+after)
	return nil
}

// referenceOf a claim once it is bound: what its author gave of an empty reference stays in it.
func referenceOf(d *selector.Decision, object map[string]any) (reference any, err error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the claim: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(d.Patch())
	if err == nil {
		raw, err = patch.Apply(raw)
	}
	bound := map[string]any{}
	if err = cmp.Or(err, json.Unmarshal(raw, &bound)); err != nil {
		return nil, fmt.Errorf("cannot bind the claim: %w", err)
	}
	reference, _ = d.View.Kind.Reader.Reference.Path.Lookup(bound)
	return reference, nil
}

// isCertain reports whether a claim gets the class of its decision, as far as anyone knows. A chooser may refuse the only candidate.
func isCertain(e *selector.Explanation) bool {
	k := e.Decision.View.Kind
	return e.Decision.Class != nil && (k.Strategy.Depends == "" || len(e.Candidates) == 1 && k.External == nil)
}

func because(e *selector.Explanation) string {
	d := &e.Decision
	kind, n := d.View.Kind, len(e.Candidates)
	one, is, matches := fmt.Sprintf("one of %d classes that", n), "are", "match"
	if n == 1 {
		one, is, matches = "the only class that", "is", "matches"
	}
	usable := ""
	if e.UsableBy != "" {
		usable = fmt.Sprintf(" and that %s may use", e.UsableBy)
	}
	text := fmt.Sprintf("%s %s the selector %q%s", one, matches, d.Claim.Selector, usable)
	switch {
	case d.Only():
		text = "the only class that is there for the claim" + usable + ", which has no class selector, and selector.whenAbsent is Only"
	case kind.Reader.Asks(d.Claim.Claim) == nil:
		text = fmt.Sprintf("%s %s marked default%s, and the claim has no class selector", one, is, usable)
	case d.Claim.Selector == nil:
		text = fmt.Sprintf("%s %s there%s, and a claim without a class selector gets any, because selector.whenAbsent is Any",
			one, is, usable)
	case d.Claim.Selector.Empty():
		text = fmt.Sprintf("%s %s there%s, and the selector {} asks for any", one, is, usable)
	}
	strategy := string(kind.Strategy.Name)
	switch {
	case n == 1 && kind.External != nil:
		return text + "; whether the claim gets it depends on " + kind.Strategy.Depends
	case n == 1:
		return text
	case kind.Strategy.Depends != "":
		return fmt.Sprintf("%s; which one %s draws depends on %s", text, strategy, kind.Strategy.Depends)
	case e.Reproducible && e.Candidates[0].Odds.Share == e.Candidates[0].Odds.Total:
		return text + "; " + strategy + " takes it"
	case e.Reproducible && d.Claim.Group != "":
		return fmt.Sprintf("%s; %s drew it for all claims of its namespace with the seed %q", text, strategy,
			truncate.String(d.Claim.Group, v1beta1.MaxShownBytes))
	case e.Reproducible:
		return text + "; " + strategy + " drew it, seeded with the claim's name, so that this claim gets it every time"
	}
	return text + "; " + strategy + " drew it this time, and draws afresh each time"
}

// Stored explains a stored claim by its ClaimKind, which is one of the World's, as it is or as if it had no class.
func Stored(ctx context.Context, w *world.World, claimKind, namespace, name string, unbound bool) (*Item, error) {
	d, err := w.Stored(ctx, claimKind, namespace, name)
	if err != nil {
		return nil, err
	}
	i := slices.Index(world.Names(w.ClaimKinds), claimKind)
	return (&options{unbound: unbound, fresh: rand.Uint64}).answer(ctx, w, &w.ClaimKinds[i], d, namespace)
}
