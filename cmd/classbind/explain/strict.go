package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
)

// unregistered checks a claim whose kind no ClaimKind registers: is that a typing error?
func (i *Item) unregistered(ctx context.Context, r *registrations, kind schema.GroupVersionKind) *Item {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	name := plural.GroupResource().String()
	registered := map[string]bool{}
	for _, k := range r.claimKinds {
		registered[k.Name] = true
	}
	of := name // The kind may differ in case alone.
	if !registered[name] {
		of = nearest(name, maps.Keys(registered))
	}
	if of == "" || slices.ContainsFunc(r.classKinds, func(k v1alpha1.ClassKind) bool { return k.Name == name }) {
		return nil
	}
	switch s, err := r.schemaOf(ctx, kind); {
	case s != nil:
		return nil // There is a kind of this name.
	case err != nil && !notServed(err):
		i.note("the kind resembles %s, and nobody can tell whether it is served: %v", of, err)
		return nil
	}
	if found := r.resources[of]; found.Kind != "" {
		of = fmt.Sprintf("%s %s of %s", found.GroupVersion(), found.Kind, of)
	}
	return i.mistaken("UnknownKind", FieldError{
		Field: "kind", Reason: "KindUnknown",
		Message: fmt.Sprintf("no ClaimKind registers %s %s: did you mean %s? Correct apiVersion and kind, or register the kind",
			kind.GroupVersion(), kind.Kind, of),
	})
}

// check returns an item for a claim of a registered kind that the API server would not store as it is,
// nil for every other claim.
func (i *Item) check(ctx context.Context, r *registrations, k *v1alpha1.ClaimKind, found resource, claim *unstructured.Unstructured) *Item {
	kind := claim.GroupVersionKind()
	s, err := r.schemaOf(ctx, kind)
	if notServed(err) {
		return i.mistaken("UnknownVersion", FieldError{
			Field: "apiVersion", Reason: "VersionUnknown", Message: fmt.Sprintf("%v: set apiVersion to %s", err, found.GroupVersion()),
		})
	}
	if err != nil {
		i.note("the fields of the claim are not checked against the schema: %v", err)
	}
	paths := [][]string{{"metadata", "annotations", v1alpha1.ClassSelectorAnnotation}}
	var errs []FieldError
	if s != nil {
		errs = s.unknownFields(claim.Object)
	} else {
		for _, p := range append(k.Spec.Paths.SettledBy(), k.Spec.Paths.ClassSelector) {
			paths = append(paths, p.Names())
		}
	}
	for _, path := range paths {
		e := nearPath(claim.Object, path)
		if e != nil && !slices.ContainsFunc(errs, func(other FieldError) bool { return other.Field == e.Field }) {
			errs = append(errs, *e)
		}
	}
	if len(errs) > 0 {
		return i.mistaken("UnknownField", errs...)
	}
	return nil
}

// nearPath returns an error if an object has no field at a path, but one whose name resembles it.
func nearPath(object map[string]any, path []string) *FieldError {
	for n, name := range path {
		if child, ok := object[name]; ok {
			object, _ = child.(map[string]any)
			continue
		}
		other := nearest(name, maps.Keys(object))
		if other == "" {
			break
		}
		return &FieldError{
			Field: strings.Join(append(slices.Clone(path[:n]), other), "."), Reason: "FieldUnknown",
			Message: fmt.Sprintf("did you mean %s? Nothing is at %s", strings.Join(path[:n+1], "."), strings.Join(path, ".")),
		}
	}
	return nil
}

// mistaken is the end of a claim that --strict refuses.
func (i *Item) mistaken(reason string, errs ...FieldError) *Item {
	texts := make([]string, len(errs))
	for n, e := range errs {
		texts[n] = e.Field + ": " + e.Message
	}
	i.Errors = errs
	return i.end(Malformed, reason, strings.Join(texts, "; ")+" (--strict=false explains the claim as it is)")
}
