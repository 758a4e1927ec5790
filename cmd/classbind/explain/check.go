package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/near"
)

// fieldUnknown is the reason for which the API server does not store a field.
const fieldUnknown = "FieldUnknown"

// check a claim of a file before it is decided on, and fill in its defaults. It is Malformed if its version is not
// served, or if the API server would drop a field: with a typing error in its selector, it would get the default class.
func (i *Item) check(ctx context.Context, r *registrations, k *v1beta1.ClaimKind, d document, object map[string]any) {
	s, err := r.schemaOf(ctx, d.GroupVersionKind())
	if notServed(err) {
		i.mistaken("UnknownVersion", FieldError{
			Field: "apiVersion", Reason: "VersionUnknown",
			Message: fmt.Sprintf("%v: set apiVersion to %s", err, r.resources[k.Name].GroupVersion()),
		})
		return
	}
	if err != nil {
		i.note("the fields of the claim are not checked against the schema: %v", err)
	}
	var errs []FieldError
	paths := [][]string{k.Spec.Selector.AnnotationPlace().Names()}
	if s != nil && s.fields != nil {
		errs = s.decode(object)
	} else { // Only the fields are known that the ClaimKind reads.
		paths = append(paths, k.Spec.Selector.Path.Names(), k.Spec.Reference.Names())
	}
	for _, path := range paths {
		if e := nearPath(object, path); e != nil && !slices.Contains(errs, *e) {
			errs = append(errs, *e)
		}
	}
	if len(errs) > 0 {
		i.mistaken("UnknownField", errs...)
	}
}

// nearPath returns an error if an object has no field at a path, but one whose name has one typing error.
func nearPath(object map[string]any, path []string) *FieldError {
	for n, name := range path {
		if child, ok := object[name]; ok {
			object, _ = child.(map[string]any)
			continue
		}
		other := near.Name(name, maps.Keys(object))
		if other == "" || near.Typos(name, other) > 1 {
			break
		}
		return &FieldError{
			Field: strings.Join(append(slices.Clone(path[:n]), other), "."), Reason: fieldUnknown,
			Message: fmt.Sprintf("did you mean %s?", strings.Join(path[:n+1], ".")),
		}
	}
	return nil
}

// mistaken is the end of a claim that the API server would not store as it is.
func (i *Item) mistaken(reason string, errs ...FieldError) {
	i.Errors = errs
	i.end(Malformed, reason, joined(errs))
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
