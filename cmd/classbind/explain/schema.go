package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector/near"
)

// check a claim of a file before it is decided on, and fill in its defaults. It is Malformed if its version is not served, or if the API
// server would drop a field: with a typing error in its selector, it would get the default class.
func (i *Item) check(ctx context.Context, w *world.World, k *v1beta1.ClaimKind, d world.Document, object map[string]any) {
	s, err := w.SchemaOf(ctx, d.GroupVersionKind())
	if world.NotServed(err) {
		message := fmt.Sprintf("%v: set apiVersion to %s", err, w.Resource(ctx, k).GroupVersion())
		i.mistaken("UnknownVersion", world.FieldError{Field: "apiVersion", Reason: "VersionUnknown", Message: message})
		return
	}
	if err != nil {
		i.note("the fields of the claim are not checked against the schema: %v", err)
	}
	paths := [][]string{k.Spec.Selector.AnnotationPlace().Names()}
	errs, ok := s.Decode(object)
	if !ok { // Only the fields are known that the ClaimKind reads.
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
func nearPath(object map[string]any, path []string) *world.FieldError {
	for n, name := range path {
		if child, ok := object[name]; ok {
			object, _ = child.(map[string]any)
			continue
		}
		other := near.Name(name, maps.Keys(object))
		if other == "" || near.Typos(name, other) > 1 {
			break
		}
		return &world.FieldError{
			Field: strings.Join(append(slices.Clone(path[:n]), other), "."), Reason: world.FieldUnknown,
			Message: fmt.Sprintf("did you mean %s?", strings.Join(path[:n+1], ".")),
		}
	}
	return nil
}

// mistaken is the end of a claim that the API server would not store as it is.
func (i *Item) mistaken(reason string, errs ...world.FieldError) *Item {
	i.Errors = errs
	return i.end(Malformed, reason, world.Joined(errs))
}
