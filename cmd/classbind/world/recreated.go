package world

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// Recreated is a claim that is decided on as if it was created now, without the class that it has.
type Recreated struct {
	Namespace, Name string
	Has             Place // Has is the class that the claim has now, or UnknownClass or WithoutClass.

	kind *Kind
	in   claim.Intake
	// sole reports whether the decision had one candidate, and fresh whether it drew afresh.
	sole, fresh bool
	// Unsure says what is not known of what its author wrote.
	Unsure []string
	// outcome is that of a claim that cannot be read, or is in a namespace whose claims are not bound; why says it for people.
	outcome, why string
}

// Read a claim of the kind, from JSON. A claim whose name the API server made up is drawn afresh, as then.
func (k *Kind) Read(ctx context.Context, raw []byte) (*Recreated, error) {
	head := struct {
		Metadata struct {
			Namespace, Name, GenerateName string
			Annotations                   map[string]string
			ManagedFields                 []metav1.ManagedFieldsEntry
		}
	}{}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("cannot read a claim: %w", err)
	}
	m := head.Metadata
	r := &Recreated{Namespace: m.Namespace, Name: cmp.Or(m.Name, m.GenerateName), kind: k, Has: Place{Outcome: WithoutClass}}
	r.in.Name = m.Name
	object, err := k.View.Kind.Reader.DecodeValid(raw)
	if err != nil { // The server refuses such a claim.
		r.outcome, r.why = Refused, truncate.Error(err).Error()
		return r, nil
	}
	if k.View.Kind.Reader.Reference.HasReference(object) {
		if class, _ := k.View.Kind.Demand.ClassOf(k.View.All, m.Namespace, object); class != nil {
			r.Has = Place{Class: selector.NameOf(class)}
		} else if k.View.Kind.Reader.Reference.NamesClass(object) {
			r.Has.Outcome = UnknownClass
		}
		if _, bound := m.Annotations[v1beta1.DecisionAnnotation]; bound || !k.View.Kind.Reader.Annotates {
			r.Unsure = k.Unbind(ctx, object, m.ManagedFields)
		}
	}
	if r.why, err = k.Excluded(ctx, m.Namespace); r.why != "" {
		r.outcome = Ignored
	}
	if err != nil || r.why != "" || k.View.Fault != nil {
		return r, err
	}
	name := m.Name
	if m.GenerateName != "" {
		name = ""
		unstructured.RemoveNestedField(object, "metadata", "name") // No expression saw it.
	}
	r.in = k.View.Kind.Reader.Read(m.Namespace, name, object)
	r.in.GenerateName = m.GenerateName
	return r, k.AddRequester(ctx, &r.in)
}

// Predictable reports whether every replica gives the claim the same class at every time. A decided claim may have a choice of one, which
// a chooser may refuse.
func (r *Recreated) Predictable() bool {
	if r == nil {
		return true
	}
	k := r.kind.View.Kind
	return !k.Limited && (r.sole && k.External == nil || k.Strategy.Depends == "" && !r.fresh)
}

// Decide on the claim, and say why it gets no class. It is an error if that is unknown, as where a right is missing. nil is a claim that no
// ClaimKind registers.
func (r *Recreated) Decide(ctx context.Context, fresh uint64) (to Place, why string, err error) {
	if r == nil {
		return Place{Outcome: Ignored}, "no ClaimKind registers the claims", nil
	}
	if r.outcome != "" {
		return Place{Outcome: r.outcome}, r.why, nil
	}
	k := r.kind
	decider := k.world.Decider(func() uint64 { return fresh }, nil)
	decider.Patient = true
	d, err := decider.Decide(ctx, k.View, r.in, selector.Mode{})
	r.fresh = k.View.Kind.DrawsAfresh(d.Claim.Claim)
	fault := (*inventory.Fault)(nil)
	switch {
	case errors.As(err, &fault) && fault.Reason == v1beta1.ReasonConflict:
		return Place{Outcome: Ignored}, fault.Text, nil
	case fault != nil && k.spec.Spec.Admission.FailurePolicy == v1beta1.Ignore:
		return Place{Outcome: WithoutClass}, fault.Text, nil
	case fault != nil:
		return Place{Outcome: Refused}, fault.Text, nil //nolint:nilerr // It is what becomes of the claim.
	case err != nil:
		return to, "", fmt.Errorf("cannot decide on the claim %s/%s: %w", r.Namespace, r.Name, truncate.Error(err))
	case d.Claim.LeftAlone != "":
		return Place{Outcome: Ignored}, d.Claim.LeftAlone, nil
	case d.Class != nil:
		r.sole = d.Candidates == 1
		return Place{Class: selector.NameOf(d.Class)}, "", nil
	case len(d.Claim.Problems) > 0, d.Denied():
		return Place{Outcome: Refused}, d.Warning(), nil
	case d.Unneeded():
		return Place{Outcome: Ignored}, "the claim asks for no class, and none is the default", nil
	case k.View.Kind.BindLater:
		return Place{Outcome: Waits}, d.Warning(), nil
	}
	return Place{Outcome: WithoutClass}, d.Warning(), nil
}

// Place is where claims are: a class, or an outcome.
type Place struct {
	Class   selector.ClassName `json:"class,omitzero"`
	Outcome string             `json:"outcome,omitempty"`
}

// The outcomes.
const (
	Waits        = "Waits"        // until a class matches
	Refused      = "Refused"      // by classbind, or by the API server while the registration is at fault
	WithoutClass = "WithoutClass" // created without a class
	Ignored      = "LeftAlone"    // not for classbind to bind
	UnknownClass = "UnknownClass" // names a class that is not there, or whose kind is not known
	AnyClass     = "AnyClass"     // gets a class, and it is not known which
)

// String is for people.
func (p Place) String() string {
	if p.Outcome == "" {
		return p.Class.String()
	}
	return map[string]string{
		Waits: "waits for a class", Refused: "refused", WithoutClass: "without a class", Ignored: "left alone",
		UnknownClass: "a class that is not known", AnyClass: "a class",
	}[p.Outcome]
}
