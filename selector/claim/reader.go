// Package claim reads claims: what one asks for, whether it is ours to bind, and its reference to
// a class, which it also writes. It knows no classes.
package claim

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// Reasons to leave a claim alone.
const (
	BeingDeleted = "BeingDeleted"
	Settled      = "Settled"
	ParentAbsent = "ParentAbsent"
	NoSelector   = "NoSelector"
	// ReferenceAbsent means that the author gave nothing of the reference.
	ReferenceAbsent = "ReferenceAbsent"
	// CheckOnly means that claims of the kind are only checked.
	CheckOnly = "CheckOnly"
	// NotYet means that claims.when is not true of the claim now.
	NotYet = "NotYet"
)

// Claim is the identity of a claim, and what it asks for.
type Claim struct {
	// Name is empty until the API server generates it from GenerateName.
	Namespace, Name, GenerateName string
	// Selector is nil for a claim without one: see Reader.Asks.
	Selector labels.Selector
	// Given is what its author has set of the class reference, nil if that is nothing.
	Given *Given
	// Object has the fields that expressions look at, nil for a kind without expressions.
	Object map[string]any
	// Request is what expressions see of who asks, nil if that is not known.
	Request map[string]any
	// Usage is how much of the capacity of its class it uses. A decision sets it.
	Usage Usage
	// Group is what claims draw alike with, by choice.seed.expression; empty, the claim draws by itself. A decision sets it.
	Group string
	// Requester is who asks, where his right to use a class counts or the claim has a chooser and no namespace; nil if that is not known.
	Requester *access.Subject
}

// Asks returns the selector of a claim. Of a claim without one, it is that of everything
// where such claims get any class, and nil where they get the default class.
func (r *Reader) Asks(c Claim) labels.Selector {
	if c.Selector == nil && r.WhenNoSelector == v1beta1.NoSelectorAny {
		return labels.Everything()
	}
	return c.Selector
}

// Intake is a claim as it was read, once, for the code that decides on it or explains it.
type Intake struct {
	Claim
	// LeftAlone is the reason why the claim is not ours to bind; empty, it is.
	LeftAlone string
	// SettledBy is the place that is set, for the reason Settled.
	SettledBy string
	// Ignored is what of the claim has no effect: its class selector, because its class reference is empty on purpose. It is a text for
	// its author, empty if there is nothing. One that names a class may have been bound by its selector.
	Ignored string
	// Problems make the claim invalid. They are for its author: MaxErrors at most, each of them short.
	Problems field.ErrorList
	// Parents is how many of the fields that lead to the class reference the claim has. The
	// reference itself counts, too, if it is an object without a name.
	Parents int
	// Named reports whether the claim names its class: see ReadNamed.
	Named bool
	// Annotated reports whether the claim has annotations.
	Annotated bool
	// Converted reports whether the API server converted the claim from another version, whose schema says what the claim must have.
	Converted bool
}

// DecodeValid reads a claim of this kind from valid JSON: only the fields that Read and BoundTo ask for. Of a value that is too long, it
// keeps the length. It fails if the claim is not an object. For invalid JSON, its result means nothing.
func (r *Reader) DecodeValid(raw []byte) (map[string]any, error) {
	return r.plan.DecodeValid(raw)
}

// Read a claim of this kind from an object that any decoder may have made. A claim that is left alone is read no further.
func (r *Reader) Read(namespace, name string, object map[string]any) Intake {
	in := Intake{Claim: Claim{Namespace: namespace, Name: name}}
	if r.Reference.IsChecked {
		in.LeftAlone = CheckOnly
		return in
	}
	reason, by, wrong := r.leaveAloneReason(object, nil)
	if reason != "" {
		in.LeftAlone = reason
		if reason == Settled {
			in.SettledBy = by.String()
		}
		if reason == Settled && slices.Equal(by, r.Reference.Path) && !r.Reference.NamesClass(object) {
			in.Ignored = r.ignoredSelector(object)
		}
		return in
	}
	if wrong != nil {
		in.Problems = field.ErrorList{wrong}
		return in
	}
	if r.hasFacts && !r.readFacts(object, &in) {
		return in
	}
	metadata, _ := object["metadata"].(map[string]any)
	in.GenerateName, _ = metadata["generateName"].(string)
	if in.Given, in.Problems = r.Reference.given(object); len(in.Problems) > 0 {
		return in
	}
	in.Selector, in.Problems = r.classSelector(object)
	in.Parents = r.Reference.Parents(object)
	_, in.Annotated = metadata["annotations"].(map[string]any)
	return in
}

// ignoredSelector is the warning about the class selector of a claim that is left alone for its empty reference. It is empty if the
// selector asks for nothing.
func (r *Reader) ignoredSelector(object map[string]any) string {
	selector, problems := r.classSelector(object)
	text := ""
	switch {
	case len(problems) > 0: // It has no effect, whatever is wrong with it.
	case selector == nil || selector.Empty():
		return ""
	default:
		text = fmt.Sprintf(" %q", truncate.String(selector.String(), v1beta1.MaxShownBytes))
	}
	return fmt.Sprintf("the class selector%s has no effect, because the class reference .%s is empty on purpose: remove one of the two",
		text, r.Reference.Path)
}

// leaveAloneReason says why a claim is not ours to bind, and by which place; empty, it is. The error is for a place that leads through
// something that is not an object. Of an update, before is what was stored; it is nil for a claim that is created, or waits.
func (r *Reader) leaveAloneReason(object, before map[string]any) (reason string, by fields.Path, err *field.Error) {
	if metadata, _ := object["metadata"].(map[string]any); metadata["deletionTimestamp"] != nil {
		return BeingDeleted, nil, nil
	}
	for i := range r.conditions {
		c := &r.conditions[i]
		if c.ofCreation && before != nil {
			continue
		}
		found, wrong := FirstSet(object, c.places)
		switch {
		case c.isReference && before != nil:
			found, wrong = nil, nil
			if r.Reference.isNamed(object) {
				return c.reason, c.places[0], nil
			}
		case c.isReference:
			if found, wrong = r.Reference.setValue(found, wrong); r.Reference.Decides && wrong == nil {
				found = nil // The expression decides when the claim is bound.
			}
		case c.ofChange && before != nil:
			if was, _ := FirstSet(before, c.places); was != nil {
				continue
			}
		}
		switch {
		case c.mustBeSet && found == nil, !c.mustBeSet && found != nil:
			return c.reason, c.places[0], nil
		case !c.mustBeSet && err == nil:
			err = wrong
		}
	}
	return "", nil, err
}

// FirstSet returns the first value that an object has at one of the places, nil if it has none.
func FirstSet(object map[string]any, places []fields.Path) (value any, err *field.Error) {
	for _, p := range places {
		if value, err = p.Lookup(object); value != nil {
			break
		}
	}
	return value, err
}

// ReadNamed reads a claim that names its class, for all that may speak against the class. Its selector is that
// of everything, because a name says more. It is left alone if it names none, or is not ours.
func (r *Reader) ReadNamed(namespace, name string, object map[string]any) Intake {
	in := Intake{Claim: Claim{Namespace: namespace, Name: name, Selector: labels.Everything()}, Named: true}
	metadata, _ := object["metadata"].(map[string]any)
	in.GenerateName, _ = metadata["generateName"].(string)
	settled, _ := FirstSet(object, r.SkipIfSet)
	switch {
	case !r.Reference.isNamed(object):
		in.LeftAlone = NotBound
	case settled != nil:
		in.LeftAlone = Settled
	case r.hasFacts:
		r.readFacts(object, &in)
	}
	return in
}

// readFacts reads what expressions look at, and evaluates claims.when if it looks at nothing
// else. It is false if that says all there is to say.
func (r *Reader) readFacts(object map[string]any, in *Intake) bool {
	for _, p := range r.LooksAt.Paths() {
		if value, _ := p.Lookup(object); !fields.IsRead(value) || expression.TooManyElements(value) {
			in.Problems = append(in.Problems, &field.Error{
				Type: field.ErrorTypeTooLong, Field: p.Field().String(),
				Detail: fmt.Sprintf("must not be longer than %d bytes, have more than %d elements or be nested %d levels deep, "+
					"because an expression of claim kind %q looks at it",
					v1beta1.MaxExpressionValueBytes, v1beta1.MaxExpressionElements, fields.MaxExpressionDepth, r.Name),
			})
			return false
		}
	}
	in.Object = object
	if r.bindWhen == nil || r.AsksOthers() || in.Named && r.Reference.Decides { // It decided that the reference counts.
		return true
	}
	budget := expression.Budget{Left: v1beta1.MaxExpressionCost}
	ok, err := r.bindWhen.Bool(&expression.Input{Claim: object}, &budget)
	switch {
	case err != nil:
		in.Problems = append(in.Problems, Failure(r.Name, "spec.claims.when", r.bindWhen, err))
	case !ok:
		in.LeftAlone = NotYet
	}
	return ok && err == nil
}

func (r *Reader) classSelector(object map[string]any) (labels.Selector, field.ErrorList) {
	value, err := r.Selector.Lookup(object)
	if err != nil {
		return nil, field.ErrorList{err}
	}
	text, err := r.Annotation.Lookup(object)
	switch {
	case err != nil:
		return nil, field.ErrorList{err}
	case value != nil && text != nil:
		detail := "give either the annotation or the field " + r.Selector.String() + ", not both"
		return nil, field.ErrorList{field.Forbidden(r.Annotation.Field(), detail)}
	case value != nil:
		return ParseSelector(value, r.selectorAt)
	case text != nil:
		return ParseSelectorText(text, r.Annotation.Field())
	}
	return nil, nil
}

// Reader reads claims of one kind: where they have what, and which of them are ours to bind.
type Reader struct {
	// Name of the ClaimKind.
	Name string
	// Resource of the claims, and the version for which the paths are written, empty while that is the one that the API server prefers.
	Resource schema.GroupResource
	Version  string

	Reference  ClassReference
	conditions []condition
	SkipIfSet  []fields.Path
	// Selector is an object, and annotation has one as a string.
	Selector, Annotation fields.Path
	selectorAt           *field.Path // as errors show it
	WhenNoSelector       v1beta1.WhenAbsent
	// allowsUnbind reports whether an update may remove the reference.
	allowsUnbind bool
	// Annotates reports whether a claim is annotated with the decision that binds it.
	Annotates bool
	// ChecksExplicit reports whether a claim which names a class itself must be one that could get it.
	ChecksExplicit bool
	// bindWhen is nil if claims without a reference are to be bound.
	bindWhen *expression.Expression
	// LooksAt is all that expressions look at in a claim.
	LooksAt *expression.Fields
	// hasFacts reports whether there are expressions that need more than a class.
	hasFacts bool
	// plan of the fields that lead to any of these.
	plan *fields.Plan
}

// NewReader returns the Reader of a ClaimKind, whose expressions are compiled.
func NewReader(k *v1beta1.ClaimKind, x *rules.ForClaims) *Reader {
	r := &Reader{
		Name:           k.Name,
		Resource:       schema.ParseGroupResource(k.Resource()),
		Version:        k.Spec.Claims.Version,
		Reference:      newClassReference(k, x.BindWhen),
		conditions:     conditionsOf(&k.Spec),
		Selector:       k.Spec.Selector.Path.Names(),
		Annotation:     k.Spec.Selector.AnnotationPlace().Names(),
		WhenNoSelector: k.Spec.Selector.WhenAbsent,
		allowsUnbind:   k.Spec.Reference.OnUnbind == v1beta1.AllowUnbind || k.Spec.Reference.List == v1beta1.ListCheckOnly,
		Annotates:      k.Spec.Choice.Annotate == v1beta1.AnnotateDecision,
		ChecksExplicit: k.Spec.Reference.Explicit == v1beta1.CheckExplicit,
		bindWhen:       x.BindWhen,
		hasFacts:       !x.IsEmpty() || len(x.LinkedFits) > 0,
	}
	r.selectorAt = r.Selector.Field()
	for _, p := range k.Spec.Claims.SkipIfSet {
		r.SkipIfSet = append(r.SkipIfSet, p.Names())
	}
	paths := slices.Concat(x.LooksAtClaim, x.Linked)
	if r.Reference.Decides { // See Decision.Given.
		paths = append(paths, r.Reference.paths()...)
	}
	r.LooksAt = expression.NewFields(paths...)
	r.plan = r.newPlan()
	return r
}

// Reads reports whether these are the claims that the kind reads.
func (r *Reader) Reads(claims metav1.GroupVersionResource) bool {
	return claims.Resource == r.Resource.Resource && claims.Group == r.Resource.Group && (r.Version == "" || claims.Version == r.Version)
}

// What is read of every claim, beside the paths of its kind.
var (
	deletionTimestamp = fields.Path{"metadata", "deletionTimestamp"}
	generateName      = fields.Path{"metadata", "generateName"}
	decision          = fields.Path{"metadata", "annotations", v1beta1.DecisionAnnotation}
)

// newPlan for the claims of a kind.
func (r *Reader) newPlan() *fields.Plan {
	p := &fields.Plan{}
	for _, at := range append(slices.Clone(r.SkipIfSet), r.Reference.Path, deletionTimestamp) {
		p.Add(at, fields.AsSet, 0)
	}
	p.Add(r.Selector, fields.AsWhole, v1beta1.MaxSelectorBytes)
	p.Add(r.Annotation, fields.AsScalar, fields.EscapeFactor*v1beta1.MaxSelectorBytes+2)
	const maxNameBytes = fields.EscapeFactor*v1beta1.MaxNameBytes + 2
	p.Add(generateName, fields.AsScalar, maxNameBytes)
	if r.Annotates {
		p.Add(decision, fields.AsScalar, maxNameBytes)
	}
	for _, part := range r.Reference.Form.Parts {
		if !r.Reference.IsList {
			p.Add(part.Path, fields.AsScalar, maxNameBytes)
		}
	}
	switch {
	case len(r.Reference.Within) > 0: // They are deeper than the elements.
		p.AddForExpressions(r.Reference.Path, v1beta1.MaxReferenceBytes, fields.MaxExpressionDepth)
	case r.Reference.IsList:
		p.Add(r.Reference.Path, fields.AsWhole, v1beta1.MaxReferenceBytes)
	}
	p.At(r.Reference.Path).MarksOthers = !r.Reference.EmptyIsUnset
	for _, at := range r.LooksAt.Paths() {
		p.AddForExpressions(at, v1beta1.MaxExpressionValueBytes, fields.MaxExpressionDepth)
	}
	return p
}

// ReadsAnnotation reports whether an annotation of claims matters.
func (r *Reader) ReadsAnnotation(key string) bool {
	return r.plan.Reads(fields.Path{"metadata", "annotations", key})
}

// AsksOthers reports whether claims.when looks at more than the claim: a claim alone does not show whether it is to be bound now.
func (r *Reader) AsksOthers() bool {
	return r.bindWhen != nil && !rules.ReadsClaimAlone(r.bindWhen)
}

// Failure of an expression that does not look at a class.
func Failure(kind, name string, e *expression.Expression, err error) *field.Error {
	at := field.NewPath("metadata")
	if looks := e.Looks(expression.Claim); len(looks) > 0 {
		at = looks[0].Field()
	}
	return field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("the expression %s of claim kind %q fails: %s",
		name, kind, truncate.String(err.Error(), v1beta1.MaxMessageBytes)))
}

// TooManyRelated is the text about a selector that selects too many objects of a namespace: n, those that are expired included.
func TooManyRelated(kind string, of *rules.Kind, namespace string, n int) string {
	in := ""
	if namespace != "" {
		in = fmt.Sprintf(" of namespace %q", truncate.String(namespace, v1beta1.MaxShownBytes))
	}
	return fmt.Sprintf("the selector of related object %q of claim kind %q selects more than %d %s%s (%d, with those that are expired): "+
		"delete some, or have an admin narrow spec.classes.related[%[1]s].selector",
		of.Name, kind, v1beta1.MaxRelatedListed, of.Resource, in, n)
}

// ReadsReferenceOf reports whether a kind looks where another one has its reference.
func (r *Reader) ReadsReferenceOf(o *Reader) bool {
	read := append(slices.Concat(r.SkipIfSet, r.LooksAt.Paths(), r.Reference.paths()), r.Selector, r.Annotation)
	return slices.ContainsFunc(read, o.Reference.Overlaps)
}
