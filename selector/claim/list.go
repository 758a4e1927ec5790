package claim

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

// Within is a place of references in an element of a list.
type Within struct {
	// Path of the reference in the element, or of the list of references. Below leads on from the elements of that.
	Path, Below fields.Path
	IsList      bool
}

// maxWithin is how many a list has at most, as its CRD does.
const maxWithin = 4

func withinOf(of *v1beta1.Reference) (all []Within) {
	for _, p := range of.Within[:min(len(of.Within), maxWithin)] {
		w := Within{}
		w.Path, w.Below, w.IsList = p.Names()
		all = append(all, w)
	}
	return all
}

// In the schema of an element.
func (w *Within) In(element fields.Path) fields.Path {
	if !w.IsList {
		return slices.Concat(element, w.Path)
	}
	return slices.Concat(element, w.Path, fields.Path{fields.Element}, w.Below)
}

// Named are the classes that a claim names: the only one, or those of a list, each once and with the field that names it. It is not ok if
// there are more than v1beta1.MaxListedReferences, or too many to read.
func (r *ClassReference) Named(object map[string]any) (all []Target, at []string, ok bool) {
	if !r.IsList {
		to, _ := r.RefersTo(object)
		return []Target{to}[:min(1, len(to.Name))], nil, true
	}
	value, _ := r.Path.Lookup(object)
	list, ok := value.([]any)
	if value == nil || !ok {
		return nil, nil, value == nil
	}
	var values []any
	add := func(value any, path string) bool {
		if slices.ContainsFunc(values, func(before any) bool { return reflect.DeepEqual(before, value) }) {
			return true
		}
		values, all, at = append(values, value), append(all, r.Form.read(value)), append(at, path)
		return len(all) <= v1beta1.MaxListedReferences
	}
	within := r.Within
	if len(within) == 0 {
		within = []Within{{}}
	}
	for _, w := range within {
		for i, element := range list {
			if !w.each(element, fmt.Sprintf(".%s[%d]", r.Path, i), add) {
				return nil, nil, false
			}
		}
	}
	return all, at, true
}

// each reference in an element, with its path; one that is absent is left out. It is false if add is.
func (w *Within) each(element any, path string, add func(value any, path string) bool) bool {
	if len(w.Path) == 0 { // The element itself is one.
		return add(element, path)
	}
	value := lookUp(w.Path, element)
	path += "." + w.Path.String()
	if !w.IsList {
		return value == nil || add(value, path)
	}
	list, _ := value.([]any)
	for i, inner := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if inner = lookUp(w.Below, inner); len(w.Below) > 0 {
			at += "." + w.Below.String()
		}
		if inner != nil && !add(inner, at) {
			return false
		}
	}
	return true
}
