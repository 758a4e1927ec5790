package selector

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// HasReference reports whether a claim has a class reference. One on which bindWhen decides
// counts as none if bindWhen may be true.
func (r *ClassReference) HasReference(object map[string]any) bool {
	value, _ := r.setValue(r.classRef.Lookup(object))
	return value != nil && !r.mayRebind(object)
}

// setValue returns what was found at the place of the class reference, nil if it is none. An
// object without a name is none if it has some of the other fields of its form, and nothing else:
// its author, or a server-side apply that took the name out, leaves the class open. Without
// emptyIsUnset, one that says nothing asks for no class, and one that says more may refer in
// another way.
func (r *ClassReference) setValue(found any, err *field.Error) (any, *field.Error) {
	if object, ok := found.(map[string]any); ok && !r.emptyIsUnset && !r.form.isBegun(object) {
		return found, nil
	}
	return r.namedValue(found, err)
}

// isBegun reports whether a reference has some of the fields of its form, and no other.
func (f *referenceForm) isBegun(reference map[string]any) (begun bool) {
	for name, value := range reference {
		if !slices.Contains(f.fields, name) {
			return false
		}
		begun = begun || value != nil && value != ""
	}
	return begun
}

// isNamed reports whether a claim names its class. One on which bindWhen decides counts as none
// if bindWhen may be true.
func (r *ClassReference) isNamed(object map[string]any) bool {
	value, _ := r.namedValue(r.classRef.Lookup(object))
	return value != nil && !r.mayRebind(object)
}

// namedValue returns what was found at the place of the class reference, nil if it has no name. A
// name that is not a string is an error of the author.
func (r *ClassReference) namedValue(found any, err *field.Error) (any, *field.Error) {
	if found == nil || err != nil {
		return found, err
	}
	object, ok := found.(map[string]any)
	switch {
	case len(r.form.fields) == 0 && found == "" && r.emptyIsUnset:
		return nil, nil
	case len(r.form.fields) == 0, !ok: // What is no text or no object, the schema refuses.
		return found, nil
	}
	if _, isLong := object["name"].(fields.LongText); isLong {
		return found, nil
	}
	name, isText := orZero[string](object["name"])
	switch {
	case !isText:
		return nil, wrongType(r.classRef.Below("name").Field(), object["name"], "a string")
	case name == "":
		return nil, nil
	}
	return found, nil
}

// given reads what the author has set of a reference that counts as none.
func (r *ClassReference) given(object map[string]any) (*Given, field.ErrorList) {
	value, _ := r.classRef.Lookup(object)
	reference, _ := value.(map[string]any)
	if name, _ := reference["name"].(string); name != "" || len(reference) == 0 {
		return nil, nil // One with a name counts as none by bindWhen, and is replaced whole.
	}
	texts, hasGroup := map[string]any{}, false
	for _, name := range r.form.fields {
		at := func() *field.Path { return r.classRef.Below(name).Field() }
		_, isLong := reference[name].(fields.LongText)
		text, isText := orZero[string](reference[name])
		switch {
		case isLong, len(text) > v1alpha1.MaxNameBytes:
			return nil, field.ErrorList{{
				Type: field.ErrorTypeTooLong, Field: at().String(),
				Detail: fmt.Sprintf("must not be longer than %d bytes", v1alpha1.MaxNameBytes),
			}}
		case !isText:
			return nil, field.ErrorList{wrongType(at(), reference[name], "a string")}
		case text != "":
			texts[name] = text
			hasGroup = hasGroup || name != "kind" && name != "namespace"
		}
	}
	if len(texts) == 0 {
		return nil, nil
	}
	of := r.form.read(texts)
	return &Given{hasGroup: hasGroup, group: of.group, kind: of.kind, namespace: of.namespace}, nil
}

// mayRebind reports whether the reference of a claim may count as none: bindWhen decides on it, and
// may be true. An expression that fails asks for nothing.
func (r *ClassReference) mayRebind(object map[string]any) bool {
	in, budget := expression.Input{Claim: object}, expression.Budget{Left: v1alpha1.MaxExpressionCost}
	for _, t := range r.terms {
		if ok, err := t.Bool(&in, &budget); err != nil || !ok {
			return false
		}
	}
	return r.decides
}
