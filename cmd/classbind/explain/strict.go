package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/brief"
)

// unregistered checks a claim whose kind no ClaimKind registers: is that a typing error?
func (i *Item) unregistered(ctx context.Context, r *registrations, kind schema.GroupVersionKind) *Item {
	var registered []string
	for i := range r.claimKinds {
		registered = append(registered, r.claimKinds[i].Resource())
	}
	of := nearestKind(kind, registered)
	if of == "" || slices.ContainsFunc(r.classKinds, func(k v1alpha1.ClassKind) bool { return isOf(k.Name, kind) }) {
		return nil
	}
	switch s, err := r.schemaOf(ctx, kind); {
	case s != nil:
		return nil // There is a kind of this name.
	case err != nil && !notServed(err):
		i.note("the kind resembles %s, and nobody can tell whether it is served: %v", of, err)
		return nil
	}
	for n := range r.claimKinds {
		k := &r.claimKinds[n]
		if found := r.resources[k.Name]; k.Resource() == of && found.Kind != "" {
			of = fmt.Sprintf("%s %s of %s", found.GroupVersion(), found.Kind, of)
			break
		}
	}
	return i.mistaken("UnknownKind", FieldError{
		Field: "kind", Reason: "KindUnknown",
		Message: fmt.Sprintf("no ClaimKind registers %s %s: did you mean %s? Correct apiVersion and kind, or register the kind",
			kind.GroupVersion(), kind.Kind, of),
	})
}

// check a claim of a registered kind before it is decided on, and fill in its defaults. It is Malformed if
// the API server could not read it, or would not store all of it. The schema is nil where none is at hand.
func (i *Item) check(
	ctx context.Context, r *registrations, k *v1alpha1.ClaimKind, found resource, object map[string]any,
) *objectSchema {
	kind := schema.FromAPIVersionAndKind(i.Claim.APIVersion, i.Claim.Kind)
	s, err := r.schemaOf(ctx, kind)
	if notServed(err) {
		i.mistaken("UnknownVersion", FieldError{
			Field: "apiVersion", Reason: "VersionUnknown", Message: fmt.Sprintf("%v: set apiVersion to %s", err, found.GroupVersion()),
		})
		return nil
	}
	if err != nil {
		i.note("the fields of the claim are not checked against the schema: %v", err)
	}
	paths := [][]string{k.Spec.ClassSelector.AnnotationPlace().Names()}
	var errs []FieldError
	if s == nil || k.Spec.Reference.Path == "" { // No schema has the key of a label or an annotation.
		paths = append(paths, k.Spec.Reference.Place().Names())
	}
	if s != nil {
		errs = s.decode(object)
	} else {
		paths = append(paths, k.Spec.ClassSelector.Path.Names())
	}
	for _, path := range paths {
		e := nearPath(object, path)
		if e != nil && !slices.ContainsFunc(errs, func(other FieldError) bool { return other.Field == e.Field }) {
			errs = append(errs, *e)
		}
	}
	if len(errs) > 0 {
		reason := "UnknownField"
		if slices.ContainsFunc(errs, func(e FieldError) bool { return e.Reason != fieldUnknown }) {
			reason = invalid
		}
		i.mistaken(reason, errs...)
	}
	return s
}

// asStored says whether the API server would store a claim as the decision makes it: with the reference to
// its class, if it gets one.
func (i *Item) asStored(
	ctx context.Context, s *objectSchema, d selector.Decision, object map[string]any,
) *Item {
	warning := i.Warning
	switch i.Outcome {
	case Bound:
		if bound, err := patched(object, d.Patch()); err == nil { // It fails for what the schema does not allow.
			object = bound
		}
		s.decode(object) // The reference may have fields that the schema does not have, or lack some that have a default.
	case Unmatched:
		if warning = d.Warning(); d.Denied() {
			return i
		}
	case LeftAlone:
	default:
		return i
	}
	unstructured.RemoveNestedField(object, "metadata", "namespace")
	if i.Claim.Namespace != "" {
		_ = unstructured.SetNestedField(object, i.Claim.Namespace, "metadata", "namespace") // The metadata were decoded.
	}
	errs, notes := s.validate(ctx, object)
	i.Notes = append(i.Notes, notes...)
	if len(errs) == 0 {
		return i
	}
	refused := &Item{Claim: i.Claim, Notes: i.Notes, Warning: warning}
	return refused.mistaken(invalid, errs...)
}

// patched is the object as the API server changes it with a JSON Patch.
func patched(object map[string]any, patch []byte) (after map[string]any, err error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	raw, err := operations.Apply(before)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(raw, &after)
	return after, err
}

// nearPath returns an error if an object has no field at a path, but one whose name resembles it.
func nearPath(object map[string]any, path []string) *FieldError {
	for n, name := range path {
		if child, ok := object[name]; ok {
			object, _ = child.(map[string]any)
			continue
		}
		other := nearest(name, maps.Keys(object))
		if other == "" || typos(name, other) > 1 { // Nobody knows whether the field is right, so it has to be very near.
			break
		}
		return &FieldError{
			Field: strings.Join(append(slices.Clone(path[:n]), other), "."), Reason: fieldUnknown,
			Message: fmt.Sprintf("did you mean %s? Nothing is at %s", strings.Join(path[:n+1], "."), strings.Join(path, ".")),
		}
	}
	return nil
}

// mistaken is the end of a claim that --strict refuses.
func (i *Item) mistaken(reason string, errs ...FieldError) *Item {
	i.Errors = atMost(errs)
	return i.end(Malformed, reason, joined(i.Errors)+" (--strict=false explains the claim as it is)")
}

const (
	// invalid is the reason for which the API server would refuse a claim.
	invalid = "Invalid"
	// fieldUnknown is the reason for which it would not store a field.
	fieldUnknown = "FieldUnknown"
)

// fieldErrors are those of a library, shortened. They are sorted, as it reads maps, and none is there
// twice: the published schema of an embedded object requires its kind again.
func fieldErrors(list field.ErrorList) []FieldError {
	errs := make([]FieldError, len(list))
	for n, err := range list {
		if err.Type == field.ErrorTypeRequired && err.Detail == "" {
			err.Detail = "set it"
		}
		errs[n] = FieldError{
			Field: brief.Text(err.Field, v1alpha1.MaxMessageBytes), Reason: string(err.Type),
			Message: brief.Text(err.ErrorBody(), v1alpha1.MaxMessageBytes),
		}
		if err.Field == (*field.Path)(nil).String() {
			errs[n].Field = "" // A rule of the whole claim.
		}
	}
	slices.SortFunc(errs, func(a, b FieldError) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(errs)
}

// atMost limits errors to MaxErrors. The last one says that there are more.
func atMost(errs []FieldError) []FieldError {
	if len(errs) <= v1alpha1.MaxErrors {
		return errs
	}
	named := v1alpha1.MaxErrors - 1
	return append(errs[:named:named], FieldError{
		Reason:  string(field.ErrorTypeTooMany),
		Message: fmt.Sprintf("there are more errors than these %d: correct them, and try again", named),
	})
}

func joined(errs []FieldError) string {
	texts := make([]string, len(errs))
	for n, e := range errs {
		texts[n] = e.Message
		if e.Field != "" {
			texts[n] = e.Field + ": " + e.Message
		}
	}
	return strings.Join(texts, "; ")
}
