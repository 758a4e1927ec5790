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

const asItIs = "--strict=false explains the claim as it is"

// unregistered checks a claim whose kind no ClaimKind registers: is that a typing error?
func (i *Item) unregistered(ctx context.Context, r *registrations, kind schema.GroupVersionKind) *Item {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	name := plural.GroupResource().String()
	n := slices.IndexFunc(r.claimKinds, func(k v1alpha1.ClaimKind) bool { return k.Name == name || resembles(name, k.Name) })
	if n < 0 || slices.ContainsFunc(r.classKinds, func(k v1alpha1.ClassKind) bool { return k.Name == name }) {
		return nil
	}
	if s, err := r.schemaOf(ctx, kind); err == nil && s != nil {
		return nil // There is a kind of this name.
	}
	of := r.claimKinds[n].Name
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
		if e := nearPath(claim.Object, path); e != nil && !slices.Contains(errs, *e) {
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
		for _, other := range slices.Sorted(maps.Keys(object)) {
			if resembles(other, name) {
				return &FieldError{
					Field: strings.Join(append(slices.Clone(path[:n]), other), "."), Reason: "FieldUnknown",
					Message: fmt.Sprintf("did you mean %s? Nothing is at %s", strings.Join(path[:n+1], "."), strings.Join(path, ".")),
				}
			}
		}
		return nil
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
	return i.end(Malformed, reason, strings.Join(texts, "; ")+"; "+asItIs)
}
