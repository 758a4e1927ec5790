package claim

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
)

// ClassReference is the class reference of the claims of one kind: where it is, how it is written, and what counts as absent.
type ClassReference struct {
	// Path of the reference: of the object that it is, or of the name in one that has no object of its own.
	Path fields.Path
	// Form of the reference, or of an element of a list.
	Form *Form
	// IsList reports whether Path is that of a list, which gets one element, unless IsChecked reports that claims are only checked.
	IsList, IsChecked bool
	// Within are the places of the references in an element, empty for a list whose elements are references.
	Within []Within
	// name is the path of the name, and parent that of the object that has the parts. Both are Path where that is a list.
	name, parent fields.Path
	required     []bool   // by the schema of the claims, of the fields that lead to the name
	pointers     []string // to the same fields, in RFC 6901 form
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
	r := referenceOf(&k.Spec.Reference)
	for len(r.pointers) < len(r.name) {
		r.pointers = append(r.pointers, r.name[:len(r.pointers)+1].Pointer())
	}
	r.required = make([]bool, len(r.pointers))
	if names := k.Spec.Classes.Namespaces.Names; len(names) > 0 && !r.Form.NamesNamespace { // It is one: see the schema.
		r.ClassNamespace = string(names[0])
	}
	if r.Decides = bindWhen != nil && r.decides(bindWhen); r.Decides {
		r.terms = slices.DeleteFunc(bindWhen.Terms(), func(t *expression.Expression) bool { return !rules.ReadsClaimAlone(t) })
	}
	return r
}

// referenceOf the claims of a registration, without what its expressions and the schema of the claims say.
func referenceOf(of *v1beta1.Reference) ClassReference {
	r := ClassReference{
		Path: of.Names(), Form: formOf(of), IsList: of.List != "", IsChecked: of.List == v1beta1.ListCheckOnly, Within: withinOf(of),
		EmptyIsUnset: of.EmptyIsUnset(), LeavesAbsent: of.WhenAbsent == v1beta1.LeaveAbsentAlone,
	}
	if r.IsList {
		r.name, r.parent = r.Path, r.Path
		return r
	}
	r.name = r.Form.Part(v1beta1.NamePart).Path
	r.parent = r.name[:len(r.name)-1]
	return r
}

// Require says which fields the schema of the claims requires, and which of them, in the reference, only an author can give.
func (r *ClassReference) Require(required []v1beta1.FieldPath, company []string) {
	r.company = company
	for i := range r.required {
		r.required[i] = slices.Contains(required, v1beta1.FieldPath("."+r.name[:i+1].String()))
	}
}

// decides reports whether claims.when looks at the class reference.
func (r *ClassReference) decides(bindWhen *expression.Expression) bool {
	return slices.ContainsFunc(bindWhen.Looks(expression.Claim), r.Overlaps)
}

// Overlaps reports whether a path is in the reference, or leads to it.
func (r *ClassReference) Overlaps(p fields.Path) bool {
	return slices.ContainsFunc(r.paths(), p.Overlaps)
}

// isWhole reports whether Path is that of all of the reference, in an object or a list.
func (r *ClassReference) isWhole() bool { return r.Form.IsObject || r.IsList }

// paths of the object that the reference is, or of all parts of one that has none.
func (r *ClassReference) paths() (all []fields.Path) {
	if r.isWhole() {
		return []fields.Path{r.Path}
	}
	for _, part := range r.Form.Parts {
		all = append(all, part.Path)
	}
	return all
}

// Written are what the parts of a reference say, in their order. What is empty is left out.
type Written [maxParts]string

// Written is the reference to a class. It has no uid, because a class that is restored from a backup has another.
func (r *ClassReference) Written(class Target) (w Written) {
	for i := range r.Form.Parts {
		w[i] = class.Of(&r.Form.Parts[i])
	}
	return w
}

// value is an object that has these parts alone, or a list with them.
func (r *ClassReference) value(w *Written) jsontext.Value {
	b := make([]byte, 0, 192)
	if r.IsList {
		b = append(b, '[')
	}
	separator := byte('{')
	for i := range r.Form.Parts {
		part := &r.Form.Parts[i]
		if w[i] == "" {
			continue
		}
		if len(part.Path) > 0 {
			b = append(fields.AppendText(append(b, separator), part.Field()), ':')
			separator = ','
		}
		b = part.append(b, w[i])
	}
	if separator == ',' {
		b = append(b, '}')
	}
	if r.IsList {
		b = append(b, ']')
	}
	return b
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

// RefersTo is what the class reference of a claim says, false if it has none, or if such claims are only checked.
func (r *ClassReference) RefersTo(object map[string]any) (to Target, bound bool) {
	found, _ := r.setValue(r.Path.Lookup(object))
	if found == nil || r.IsChecked {
		return Target{}, false
	}
	if !r.IsList {
		return r.Form.read(object), true
	}
	if list, _ := found.([]any); len(list) > 0 {
		to = r.Form.read(list[0])
	}
	return to, true
}

// Parents counts the objects on the path to the parts of the reference that a claim has. A
// reference that is an object is one, and names nothing yet, or the claim would be left alone.
func (r *ClassReference) Parents(object map[string]any) int {
	for i, name := range r.parent {
		child, ok := object[name].(map[string]any)
		if !ok {
			return i
		}
		object = child
	}
	return len(r.parent)
}

// MaxParents is how many Parents a claim has at most.
func (r *ClassReference) MaxParents() int { return len(r.parent) }

// Lacks returns the field that the schema requires of a claim, if the claim with so many
// parents goes without its reference; empty if there is none. An empty name counts as absent.
func (r *ClassReference) Lacks(parents int) string {
	if !r.required[parents] {
		return ""
	}
	return "." + r.name[:parents+1].String()
}

// LacksCompany returns an error if a claim with so many parents gets a reference, in which the schema
// requires more than we know; nil if not. What an author gave of a reference, the API server checks.
func (r *ClassReference) LacksCompany(parents int) *field.Error {
	if len(r.company) == 0 || parents == len(r.parent) {
		return nil
	}
	return field.Required(r.Path.Below(r.company[0]).Field(),
		"the schema requires it beside the name of a class, and only the author of the claim can give it")
}

// Patch gives a claim its class, after these tests, and annotates it with the decision, unless that is empty.
func (r *ClassReference) Patch(in *Intake, class Target, decision string, tests []fields.Operation) []byte {
	operations := append(make([]fields.Operation, 0, 8), tests...) // The capacity saves an allocation.
	if in.Parents == len(r.parent) {
		operations = r.removeParts(operations, in, class)
	}
	written := r.Written(class)
	operations = r.add(operations, in.Parents, in.Given, &written)
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

// removeParts appends what takes out of a reference that counts as absent by claims.when the parts
// that the reference to the class goes without. Otherwise it would name another class.
func (r *ClassReference) removeParts(to []fields.Operation, in *Intake, class Target) []fields.Operation {
	if !r.Decides {
		return to
	}
	for i := range r.Form.Parts {
		part := &r.Form.Parts[i]
		if !isEmpty(part.in(in.Object)) && !in.Given.has(part) && class.Of(part) == "" {
			to = append(to, fields.Remove(part.Pointer))
		}
	}
	return to
}

// add parts of a reference, and the missing objects that lead to them; parents is how many of these the claim has. What its author has
// given stays.
func (r *ClassReference) add(to []fields.Operation, parents int, given *Given, w *Written) []fields.Operation {
	if parents < len(r.parent) {
		return append(to, r.addObject(parents, r.value(w)))
	}
	for i := range r.Form.Parts {
		if part := &r.Form.Parts[i]; w[i] != "" && !given.has(part) {
			to = append(to, fields.Add(part.Pointer, part.append(nil, w[i])))
		}
	}
	return to
}

// addObject adds the object that has the parts, and the missing ones that lead to it.
func (r *ClassReference) addObject(parents int, value jsontext.Value) fields.Operation {
	for i := len(r.parent) - 1; i > parents; i-- {
		value = fmt.Appendf(nil, `{"%s":%s}`, r.parent[i], value)
	}
	return fields.Add(r.pointers[parents], value)
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
	list, isList := found.([]any)
	switch {
	case r.IsList && isList && len(list) == 0 && r.EmptyIsUnset, !r.isWhole() && found == "" && r.EmptyIsUnset:
		return nil, nil
	case !r.Form.IsObject, r.IsList, !ok: // What is not a string, or not an object, the schema refuses.
		return found, nil
	}
	value := object[r.name[len(r.name)-1]]
	if _, isLong := value.(fields.LongText); isLong {
		return found, nil
	}
	name, isText := orZero[string](value)
	switch {
	case !isText:
		return nil, wrongType(r.name.Field(), value, "a string")
	case name == "":
		return nil, nil
	}
	return found, nil
}

// given reads what the author has set of a reference that counts as absent.
func (r *ClassReference) given(object map[string]any) (*Given, field.ErrorList) {
	if whole, _ := r.Path.Lookup(object); r.IsList || r.Form.IsObject && whole == nil || len(r.Form.Parts) == 1 && !r.Form.IsObject {
		return nil, nil
	}
	if found, _ := r.name.Lookup(object); isText(found) {
		return nil, nil // One with a name counts as absent by claims.when, and is replaced whole.
	}
	given, hasAny, of := &Given{}, false, Target{}
	for i := range r.Form.Parts {
		part := &r.Form.Parts[i]
		value := part.in(object)
		text, _ := value.(string)
		switch _, isLong := value.(fields.LongText); {
		case isEmpty(value):
			continue
		case isLong, len(text) > v1beta1.MaxNameBytes:
			return nil, field.ErrorList{{
				Type: field.ErrorTypeTooLong, Field: part.Path.Field().String(),
				Detail: fmt.Sprintf("must not be longer than %d bytes", v1beta1.MaxNameBytes),
			}}
		case !of.set(part, value):
			return nil, field.ErrorList{wrongType(part.Path.Field(), value, "a "+part.Type())}
		}
		hasAny = true
		given.HasGroup = given.HasGroup || part.Role == v1beta1.GroupPart || part.Role == v1beta1.APIVersionPart
	}
	if !hasAny {
		return nil, nil
	}
	given.Group, given.Kind, given.Namespace = of.Group, of.Kind, of.Namespace
	return given, nil
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
