package selector

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// ClassReference is the class reference of the claims of one kind: where it is, how it is
// written, and what counts as none.
type ClassReference struct {
	classRef fields.Path
	form     *referenceForm
	required []bool   // by the schema of the claims, of the fields that lead to classRef and the name in it
	pointers []string // to the same fields, in RFC 6901 form
	// emptyIsUnset reports whether every reference without a name is none: see setValue.
	emptyIsUnset bool
	// classNamespace is that of the classes to which references without one refer; empty, it is the claim's.
	// Where the form has a namespace, one without was stored without.
	classNamespace string
	// decides says that bindWhen decides on claims that have a reference, and terms are those of
	// it that need nothing but the claim.
	decides bool
	terms   []*expression.Expression
}

func newClassReference(k *v1alpha1.ClaimKind, bindWhen *expression.Expression) ClassReference {
	at := fields.Path(k.Spec.Reference.Place().Names())
	r := ClassReference{classRef: at, form: formOf(k.Spec.Reference.Form), emptyIsUnset: k.Spec.Reference.EmptyIsUnset}
	for last := at.Below("name"); len(r.required) < len(last); {
		next := last[:len(r.required)+1]
		r.required = append(r.required, slices.Contains(k.Status.Required, v1alpha1.FieldPath("."+next.String())))
		r.pointers = append(r.pointers, next.Pointer())
	}
	if names := k.Spec.ClassNamespaces.Names; len(names) > 0 && !r.form.namesNamespace { // It is one: see the schema.
		r.classNamespace = string(names[0])
	}
	if r.decides = bindWhen != nil && decidesOn(bindWhen, at); r.decides {
		r.terms = slices.DeleteFunc(bindWhen.Terms(), func(t *expression.Expression) bool { return !readsClaimAlone(t) })
	}
	return r
}

// decidesOn reports whether bindWhen looks at the class reference.
func decidesOn(bindWhen *expression.Expression, reference fields.Path) bool {
	return slices.ContainsFunc(bindWhen.Looks(expression.Claim), reference.Overlaps)
}

// Reference to a class, in the form that claims of this kind take. It has no uid,
// because a class that is restored from a backup has another.
func (r *ClassReference) Reference(c *Class) jsontext.Value { return r.form.write(c.named()) }

// ReferenceFields are the fields of the same, with their texts. There are none of the form Name.
func (r *ClassReference) ReferenceFields(c *Class) iter.Seq2[string, string] {
	return r.form.written(c.named())
}

// ReferencePath is the path of the reference, with a leading dot.
func (r *ClassReference) ReferencePath() string { return "." + r.classRef.String() }

// BoundTo reports whether a claim has its class reference, and for which classes it counts.
// A reference without a namespace may name a cluster-scoped class, or one in the
// namespace whose classes the claim is offered. A class kind has only one of the two.
func (r *ClassReference) BoundTo(namespace string, object map[string]any) (classes [2]uint64, bound bool) {
	to, bound := r.refersTo(object)
	if !bound || r.mayRebind(object) {
		return classes, false
	}
	return r.countsFor(namespace, to), true
}

// countsFor are the classes for which a reference counts.
func (r *ClassReference) countsFor(namespace string, to named) (classes [2]uint64) {
	classes[0] = placeOf(to.group, to.kind, to.namespace, to.name)
	if namespace = cmp.Or(r.classNamespace, namespace); to.namespace == "" && namespace != "" {
		classes[1] = placeOf(to.group, to.kind, namespace, to.name)
	}
	return classes
}

// NamesClass reports whether the class reference of a claim has the name of a class.
func (r *ClassReference) NamesClass(object map[string]any) bool {
	to, _ := r.refersTo(object)
	return to.name != ""
}

// refersTo is what the class reference of a claim says, false if it has none.
func (r *ClassReference) refersTo(object map[string]any) (to named, bound bool) {
	value, _ := r.setValue(r.classRef.Lookup(object))
	if value == nil {
		return named{}, false
	}
	return r.form.read(value), true
}

// parents counts the objects on the path to the reference, and at its end, that a claim
// has. A reference that is an object is none yet, or the claim would be left alone.
func (r *ClassReference) parents(object map[string]any) int {
	for i, name := range r.classRef {
		child, ok := object[name].(map[string]any)
		if !ok {
			return i
		}
		object = child
	}
	return len(r.classRef)
}

// lacks returns the field that the schema requires of a claim, if the claim with so many
// parents goes without its reference; empty if there is none. An empty name counts as none.
func (r *ClassReference) lacks(parents int) string {
	if !r.required[parents] {
		return ""
	}
	if parents == len(r.classRef) {
		return "." + r.classRef.Below("name").String()
	}
	return "." + r.classRef[:parents+1].String()
}

// patch gives a claim its class, after these tests.
func (r *ClassReference) patch(in *Intake, class named, tests []fields.Operation) []byte {
	operations := append(make([]fields.Operation, 0, 8), tests...) // The capacity saves an allocation.
	if in.Parents == len(r.classRef) {
		return fields.Patch(r.addFields(r.removeFields(operations, in, class), in.Given, class.text)...)
	}
	return fields.Patch(append(operations, r.addReference(in.Parents, r.form.write(class)))...)
}

// removeFields appends what takes out of a reference that counts as none by bindWhen the fields
// that the reference to the class goes without. Otherwise it would name another class.
func (r *ClassReference) removeFields(to []fields.Operation, in *Intake, class named) []fields.Operation {
	if !r.decides {
		return to
	}
	value, _ := r.classRef.Lookup(in.Object)
	reference, _ := value.(map[string]any)
	for _, field := range r.form.fields {
		if text := reference[field]; text != nil && text != "" && !in.Given.has(field) && class.text(field) == "" {
			to = append(to, fields.Remove(r.classRef.Below(field).Pointer()))
		}
	}
	return to
}

// addReference adds a reference, and its missing parents; parents is how many the claim has.
func (r *ClassReference) addReference(parents int, value jsontext.Value) fields.Operation {
	for i := len(r.classRef) - 1; i > parents; i-- {
		value = fmt.Appendf(nil, `{"%s":%s}`, r.classRef[i], value)
	}
	return fields.Add(r.pointers[parents], value)
}

// addFields appends what completes a reference that is there without a name. What its author
// has set stays.
func (r *ClassReference) addFields(to []fields.Operation, given *Given, text func(field string) string) []fields.Operation {
	for _, field := range r.form.fields {
		if text := text(field); text != "" && !given.has(field) {
			to = append(to, fields.Add(r.classRef.Below(field).Pointer(), fields.AppendText(nil, text)))
		}
	}
	return to
}
