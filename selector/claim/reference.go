package claim

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
)

// ClassReference is the class reference of the claims of one kind: where it is, how it is written, and what counts as absent.
type ClassReference struct {
	Path     fields.Path
	Form     *Form
	required []bool   // by the schema of the claims, of the fields that lead to classRef and the name in it
	pointers []string // to the same fields, in RFC 6901 form
	// EmptyIsUnset reports whether every reference without a name counts as absent: see setValue.
	EmptyIsUnset bool
	// LeavesAbsent reports whether a claim without any reference is left alone, and company has the fields of
	// it that the schema of the claims requires and only their author can give.
	LeavesAbsent bool
	company      []string
	// ClassNamespace is that of the classes to which references without one refer; empty, it is the claim's.
	// Where the form has a namespace, one without was stored without.
	ClassNamespace string
	// Decides reports whether claims.when decides on claims that have a reference, and terms are those that need only the claim.
	Decides bool
	terms   []*expression.Expression
}

func newClassReference(k *v1beta1.ClaimKind, bindWhen *expression.Expression) ClassReference {
	at := fields.Path(k.Spec.Reference.Names())
	r := ClassReference{Path: at, Form: formOf(k.Spec.Reference.Form), EmptyIsUnset: k.Spec.Reference.EmptyIsUnset()}
	r.LeavesAbsent = k.Spec.Reference.WhenAbsent == v1beta1.LeaveAbsentAlone
	for last := at.Below("name"); len(r.pointers) < len(last); {
		r.pointers = append(r.pointers, last[:len(r.pointers)+1].Pointer())
	}
	r.required = make([]bool, len(r.pointers))
	if names := k.Spec.Classes.Namespaces.Names; len(names) > 0 && !r.Form.NamesNamespace { // It is one: see the schema.
		r.ClassNamespace = string(names[0])
	}
	if r.Decides = bindWhen != nil && decidesOn(bindWhen, at); r.Decides {
		r.terms = slices.DeleteFunc(bindWhen.Terms(), func(t *expression.Expression) bool { return !rules.ReadsClaimAlone(t) })
	}
	return r
}

// Require says which fields the schema of the claims requires, and which of them, in the reference, only an author can give.
func (r *ClassReference) Require(required []v1beta1.FieldPath, company []string) {
	r.company = company
	last := r.Path.Below("name")
	for i := range r.required {
		r.required[i] = slices.Contains(required, v1beta1.FieldPath("."+last[:i+1].String()))
	}
}

// decidesOn reports whether claims.when looks at the class reference.
func decidesOn(bindWhen *expression.Expression, reference fields.Path) bool {
	return slices.ContainsFunc(bindWhen.Looks(expression.Claim), reference.Overlaps)
}

// Written are the fields of the reference to a class, with their texts. What is empty is left
// out: the core's group, and the namespace of a cluster-scoped class.
func (r *ClassReference) Written(class Target) iter.Seq2[string, string] {
	return func(yield func(field, text string) bool) {
		for _, field := range r.Form.Fields {
			if text := class.Text(field); text != "" && !yield(field, text) {
				return
			}
		}
	}
}

// Value of a reference to a class, in the form that claims of this kind take. It has no uid,
// because a class that is restored from a backup has another.
func (r *ClassReference) Value(class Target) jsontext.Value {
	if len(r.Form.Fields) == 0 {
		return fields.AppendText(nil, class.Name)
	}
	b := append(make([]byte, 0, 192), '{')
	for field, text := range r.Written(class) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = fields.AppendText(b, field)
		b = append(b, ':')
		b = fields.AppendText(b, text)
	}
	return append(b, '}')
}

// BoundTo reports whether a claim has its class reference, and for which classes it counts. A reference without a namespace may name a
// cluster-scoped class, or one in the namespace whose classes the claim is offered. A class kind has only one of the two.
func (r *ClassReference) BoundTo(namespace string, object map[string]any) (classes [2]uint64, bound bool) {
	to, bound := r.RefersTo(object)
	if !bound || r.MayRebind(object) {
		return classes, false
	}
	return r.CountsFor(namespace, to), true
}

// CountsFor are the classes for which a reference counts.
func (r *ClassReference) CountsFor(namespace string, to Target) (classes [2]uint64) {
	classes[0] = PlaceOf(to.Group, to.Kind, to.Namespace, to.Name)
	if namespace = cmp.Or(r.ClassNamespace, namespace); to.Namespace == "" && namespace != "" {
		classes[1] = PlaceOf(to.Group, to.Kind, namespace, to.Name)
	}
	return classes
}

// NamesClass reports whether the class reference of a claim has the name of a class.
func (r *ClassReference) NamesClass(object map[string]any) bool {
	to, _ := r.RefersTo(object)
	return to.Name != ""
}

// RefersTo is what the class reference of a claim says, false if it has none.
func (r *ClassReference) RefersTo(object map[string]any) (to Target, bound bool) {
	value, _ := r.setValue(r.Path.Lookup(object))
	if value == nil {
		return Target{}, false
	}
	return r.Form.read(value), true
}

// Parents counts the objects on the path to the reference, and at its end, that a claim
// has. A reference that is an object names nothing yet, or the claim would be left alone.
func (r *ClassReference) Parents(object map[string]any) int {
	for i, name := range r.Path {
		child, ok := object[name].(map[string]any)
		if !ok {
			return i
		}
		object = child
	}
	return len(r.Path)
}

// Lacks returns the field that the schema requires of a claim, if the claim with so many
// parents goes without its reference; empty if there is none. An empty name counts as absent.
func (r *ClassReference) Lacks(parents int) string {
	if !r.required[parents] {
		return ""
	}
	if parents == len(r.Path) {
		return "." + r.Path.Below("name").String()
	}
	return "." + r.Path[:parents+1].String()
}

// LacksCompany returns an error if a claim with so many parents gets a reference, in which the schema
// requires more than we know; nil if not. What an author gave of a reference, the API server checks.
func (r *ClassReference) LacksCompany(parents int) *field.Error {
	if len(r.company) == 0 || parents == len(r.Path) {
		return nil
	}
	return field.Required(r.Path.Below(r.company[0]).Field(),
		"the schema requires it beside the name of a class, and only the author of the claim can give it")
}

// Patch gives a claim its class, after these tests, and annotates it with the decision, unless that is empty.
func (r *ClassReference) Patch(in *Intake, class Target, decision string, tests []fields.Operation) []byte {
	operations := append(make([]fields.Operation, 0, 8), tests...) // The capacity saves an allocation.
	if in.Parents == len(r.Path) {
		operations = r.addFields(r.removeFields(operations, in, class), in.Given, class.Text)
	} else {
		operations = append(operations, r.AddReference(in.Parents, r.Value(class)))
	}
	return fields.Patch(annotate(operations, r.Path, in.Annotated, decision)...)
}

// annotate appends what annotates a claim, which has annotations or not, with a decision. An empty one is not written.
func annotate(to []fields.Operation, reference fields.Path, isAnnotated bool, text string) []fields.Operation {
	switch {
	case text == "":
		return to
	case isAnnotated, reference.IsKey() && reference[1] == decision[1]: // Then the reference was added before.
		return append(to, fields.Add(decision.Pointer(), fields.AppendText(nil, text)))
	}
	return append(to, fields.Add(decision[:2].Pointer(), fmt.Appendf(nil, `{"%s":%s}`, decision[2], fields.AppendText(nil, text))))
}

// removeFields appends what takes out of a reference that counts as absent by claims.when the fields
// that the reference to the class goes without. Otherwise it would name another class.
func (r *ClassReference) removeFields(to []fields.Operation, in *Intake, class Target) []fields.Operation {
	if !r.Decides {
		return to
	}
	value, _ := r.Path.Lookup(in.Object)
	reference, _ := value.(map[string]any)
	for _, field := range r.Form.Fields {
		if text := reference[field]; text != nil && text != "" && !in.Given.has(field) && class.Text(field) == "" {
			to = append(to, fields.Remove(r.Path.Below(field).Pointer()))
		}
	}
	return to
}

// AddReference adds a reference, and its missing parents; parents is how many the claim has.
func (r *ClassReference) AddReference(parents int, value jsontext.Value) fields.Operation {
	for i := len(r.Path) - 1; i > parents; i-- {
		value = fmt.Appendf(nil, `{"%s":%s}`, r.Path[i], value)
	}
	return fields.Add(r.pointers[parents], value)
}

// addFields appends what completes a reference that is there without a name. What its author has set stays.
func (r *ClassReference) addFields(to []fields.Operation, given *Given, text func(field string) string) []fields.Operation {
	for _, field := range r.Form.Fields {
		if text := text(field); text != "" && !given.has(field) {
			to = append(to, fields.Add(r.Path.Below(field).Pointer(), fields.AppendText(nil, text)))
		}
	}
	return to
}

// Seed of the hashes of keys. It differs from process to process: authors of classes and claims choose names and labels, and must not
// choose their places in a table. Many in one place would be searched one by one.
var Seed = maphash.MakeSeed()

// PlaceOf a class, whatever its version. What a form of reference does not name, group or kind, is empty.
func PlaceOf(group, kind, namespace, name string) uint64 {
	return maphash.Comparable(Seed, [...]string{group, kind, namespace, name})
}

// HasReference reports whether a claim has a class reference. One on which claims.when decides counts as absent if claims.when may be true.
func (r *ClassReference) HasReference(object map[string]any) bool {
	value, _ := r.setValue(r.Path.Lookup(object))
	return value != nil && !r.MayRebind(object)
}

// setValue returns what was found at the place of the class reference, nil if it counts as absent. An object without a name does if it has
// some of the other fields of its form, and nothing else: its author, or a server-side apply that took the name out, leaves the class open.
// With whenEmpty: LeaveAlone, one that says nothing asks for no class, and one that says more may refer in another way.
func (r *ClassReference) setValue(found any, err *field.Error) (any, *field.Error) {
	if object, ok := found.(map[string]any); ok && !r.EmptyIsUnset && !r.Form.isBegun(object) {
		return found, nil
	}
	return r.namedValue(found, err)
}

// isNamed reports whether a claim names its class. One on which claims.when decides counts as absent if claims.when may be true.
func (r *ClassReference) isNamed(object map[string]any) bool {
	value, _ := r.namedValue(r.Path.Lookup(object))
	return value != nil && !r.MayRebind(object)
}

// namedValue returns what was found at the place of the class reference, nil if it has no name. A
// name that is not a string is an error of the author.
func (r *ClassReference) namedValue(found any, err *field.Error) (any, *field.Error) {
	if found == nil || err != nil {
		return found, err
	}
	object, ok := found.(map[string]any)
	switch {
	case len(r.Form.Fields) == 0 && found == "" && r.EmptyIsUnset:
		return nil, nil
	case len(r.Form.Fields) == 0, !ok: // What is no text or no object, the schema refuses.
		return found, nil
	}
	if _, isLong := object["name"].(fields.LongText); isLong {
		return found, nil
	}
	name, isText := orZero[string](object["name"])
	switch {
	case !isText:
		return nil, wrongType(r.Path.Below("name").Field(), object["name"], "a string")
	case name == "":
		return nil, nil
	}
	return found, nil
}

// given reads what the author has set of a reference that counts as absent.
func (r *ClassReference) given(object map[string]any) (*Given, field.ErrorList) {
	value, _ := r.Path.Lookup(object)
	reference, _ := value.(map[string]any)
	if name, _ := reference["name"].(string); name != "" || len(reference) == 0 {
		return nil, nil // One with a name counts as absent by claims.when, and is replaced whole.
	}
	texts, hasGroup := map[string]any{}, false
	for _, name := range r.Form.Fields {
		at := func() *field.Path { return r.Path.Below(name).Field() }
		_, isLong := reference[name].(fields.LongText)
		text, isText := orZero[string](reference[name])
		switch {
		case isLong, len(text) > v1beta1.MaxNameBytes:
			return nil, field.ErrorList{{
				Type: field.ErrorTypeTooLong, Field: at().String(),
				Detail: fmt.Sprintf("must not be longer than %d bytes", v1beta1.MaxNameBytes),
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
	of := r.Form.read(texts)
	return &Given{HasGroup: hasGroup, Group: of.Group, Kind: of.Kind, Namespace: of.Namespace}, nil
}

// MayRebind reports whether the reference of a claim may count as none: claims.when decides on it, and
// may be true. An expression that fails asks for nothing.
func (r *ClassReference) MayRebind(object map[string]any) bool {
	in, budget := expression.Input{Claim: object}, expression.Budget{Left: v1beta1.MaxExpressionCost}
	for _, t := range r.terms {
		if ok, err := t.Bool(&in, &budget); err != nil || !ok {
			return false
		}
	}
	return r.Decides
}

// apiVersion is the field that has a version, too. Which one does not matter.
const apiVersion = "apiVersion"

// Target is what a reference of any form can say of its class.
type Target struct {
	schema.GroupVersionKind

	Namespace, Name string
}

// part that stands in a field of a reference. In an apiVersion, a version follows the group.
func (n *Target) part(field string) *string {
	switch field {
	case apiVersion, "apiGroup", "group":
		return &n.Group
	case "kind":
		return &n.Kind
	case "namespace":
		return &n.Namespace
	}
	return &n.Name
}

// Text in a field of the reference.
func (n Target) Text(field string) string {
	if field == apiVersion {
		return schema.GroupVersion{Group: n.Group, Version: n.Version}.String()
	}
	return *n.part(field)
}
