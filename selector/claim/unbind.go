package claim

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

// GivenByAuthor reports whether a claim has its class from its author, or from who restored it: that manages the name, and no decision is
// noted on the claim.
func (r *ClassReference) GivenByAuthor(object map[string]any, managed []metav1.ManagedFieldsEntry) bool {
	_, author := managersOf(managed)
	noted, _ := decision.Lookup(object)
	return noted == nil && author.manage(r.name)
}

// Unbind takes out of the class reference of a claim what classbind wrote, and leaves what its author wrote. The managed fields of the
// claim distinguish these: what admission wrote has no manager, because the API server notes what the author wrote before that, and late
// binding is a manager of its own. Where they do not, known is false, and each field of the form counts as written by classbind.
func (r *ClassReference) Unbind(object map[string]any, managed []metav1.ManagedFieldsEntry) (known bool) {
	parent, last := object, r.Path[len(r.Path)-1]
	if above := r.Path[:len(r.Path)-1]; len(above) > 0 {
		found, _ := above.Lookup(object)
		parent, _ = found.(map[string]any)
	}
	reference, isObject := parent[last].(map[string]any)
	if parent[last] == nil || r.IsChecked { // Authors wrote all of what is only checked.
		return true
	}
	us, author := managersOf(managed)
	annotation, _ := decision.Lookup(object)
	// Who restored a claim manages all of it, and with claims.when, a reference to another class may have been replaced whole.
	recorded := len(managed) > 0 && (!author.manage(r.name) || annotation != nil && !author.manage(decision))
	if r.Decides {
		recorded = len(managed) > 0 && !author.manage(r.name) && !us.manage(r.name)
	}
	known = recorded || !r.Decides
	recorded = recorded && !author.manage(r.parent.Below("")) && !us.manage(r.parent.Below(""))
	kept := map[string]any{}
	for field, value := range reference {
		if !r.Form.hasField(field) && r.EmptyIsUnset { // Else classbind would have left the claim alone: it came later.
			kept[field] = value
		}
	}
	for i := range r.Form.Parts {
		part := &r.Form.Parts[i]
		if r.IsList { // An author who gives an element gives the reference.
			break
		}
		switch value := part.in(object); {
		case part.Role == v1beta1.NamePart, isEmpty(value):
		case recorded && author.manage(part.Path):
			kept[part.Field()] = value
		default:
			known = known && recorded
			if !r.Form.IsObject {
				delete(parent, part.Field())
			}
		}
	}
	switch delete(parent, last); {
	case isObject && (len(kept) > 0 || r.LeavesAbsent):
		parent[last] = kept
	case r.LeavesAbsent && r.IsList:
		parent[last] = []any{}
	case r.LeavesAbsent && len(kept) == 0:
		parent[last] = ""
	}
	return known
}

// managers are what each of some managers manages, as FieldsV1.
type managers []map[string]any

// managersOf a claim: classbind, and others.
func managersOf(managed []metav1.ManagedFieldsEntry) (us, others managers) {
	for _, e := range managed {
		of, _ := fields.ReadWhole(e.FieldsV1.GetRawBytes(), fields.MaxExpressionDepth).(map[string]any)
		if e.Manager == v1beta1.FieldManager {
			us = append(us, of)
		} else {
			others = append(others, of)
		}
	}
	return us, others
}

// manage reports whether one of them manages the field at a path, which ends with "" for an object that is managed as one.
func (m managers) manage(p fields.Path) bool {
	return slices.ContainsFunc(m, func(of map[string]any) bool {
		for _, name := range p {
			if name == "" {
				return len(of) == 0
			}
			below, ok := of["f:"+name].(map[string]any)
			if !ok {
				return false
			}
			of = below
		}
		return true
	})
}
