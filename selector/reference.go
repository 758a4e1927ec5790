package selector

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1alpha1"
)

// referenceForm is how a class reference is written and read.
type referenceForm struct {
	name v1alpha1.ReferenceForm
	// fields of the reference, in the order in which they are written. A reference without
	// any is a text, the name of the class.
	fields []string

	namesKind      kindNaming
	namesNamespace bool
}

// kindNaming is what a reference says of the kind of its class.
type kindNaming int8

const (
	noKind kindNaming = iota
	kindAlone
	groupAndKind
)

// referenceForms has all of them, those that say more first. A new form is a new row. What
// stands in a field follows from its name.
var referenceForms = []referenceForm{
	newForm(v1alpha1.ObjectReference, "apiVersion", "kind", "namespace", "name"),
	newForm(v1alpha1.TypedObjectReference, "apiGroup", "kind", "namespace", "name"),
	newForm(v1alpha1.TypedLocalObjectReference, "apiGroup", "kind", "name"),
	newForm(v1alpha1.GroupKindReference, "group", "kind", "name"),
	newForm(v1alpha1.KindReference, "kind", "name"),
	newForm(v1alpha1.NamespacedReference, "namespace", "name"),
	newForm(v1alpha1.LocalObjectReference, "name"),
	newForm(v1alpha1.Name),
}

func newForm(name v1alpha1.ReferenceForm, fields ...string) referenceForm {
	f := referenceForm{name: name, fields: fields}
	var all named
	for _, field := range fields {
		*all.part(field) = field
	}
	switch {
	case all.group != "":
		f.namesKind = groupAndKind
	case all.kind != "":
		f.namesKind = kindAlone
	}
	f.namesNamespace = all.namespace != ""
	return f
}

// apiVersion is the field that has a version, too. Which one does not matter.
const apiVersion = "apiVersion"

// named is what a reference says of its class.
type named struct{ group, kind, namespace, name string }

// part that stands in a field of a reference. In an apiVersion, a version
// follows the group.
func (n *named) part(field string) *string {
	switch field {
	case apiVersion, "apiGroup", "group":
		return &n.group
	case "kind":
		return &n.kind
	case "namespace":
		return &n.namespace
	}
	return &n.name
}

// textIn a field of the reference to a class.
func textIn(field string, c *Class) string {
	if field == apiVersion {
		return c.Kind.GroupVersionKind.GroupVersion().String()
	}
	all := c.named()
	return *all.part(field)
}

// named is what a reference of any form can say of the class.
func (c *Class) named() named {
	return named{c.Kind.GroupVersionKind.Group, c.Kind.GroupVersionKind.Kind, c.Namespace, c.Name}
}

// written are the fields of the reference to a class, with their texts. What is empty is left
// out: the core's group, and the namespace of a cluster-scoped class.
func (f *referenceForm) written(c *Class) iter.Seq2[string, string] {
	return func(yield func(field, text string) bool) {
		for _, field := range f.fields {
			if text := textIn(field, c); text != "" && !yield(field, text) {
				return
			}
		}
	}
}

func (f *referenceForm) write(c *Class) jsontext.Value {
	if len(f.fields) == 0 {
		return AppendText(nil, c.Name)
	}
	b := append(make([]byte, 0, 192), '{')
	for field, text := range f.written(c) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = AppendText(b, field)
		b = append(b, ':')
		b = AppendText(b, text)
	}
	return append(b, '}')
}

// read the value of a claim's reference.
func (f *referenceForm) read(value any) (to named) {
	if len(f.fields) == 0 {
		to.name, _ = value.(string)
		return to
	}
	object, _ := value.(map[string]any)
	for _, field := range f.fields {
		text, _ := object[field].(string)
		if field == apiVersion {
			group, _, ok := strings.Cut(text, "/")
			if text = group; !ok { // It is a version of the core's.
				text = ""
			}
		}
		*to.part(field) = text
	}
	return to
}

// formOf returns a form by its name, and ObjectReference for an unknown or empty name.
func formOf(name v1alpha1.ReferenceForm) *referenceForm {
	i := slices.IndexFunc(referenceForms, func(f referenceForm) bool { return f.name == name })
	return &referenceForms[max(i, 0)]
}

// Reference to a class, in the form that claims of this kind take. It has no uid,
// because a class that is restored from a backup has another.
func (k *ClaimKind) Reference(c *Class) jsontext.Value { return k.form.write(c) }

// ReferenceFields are the fields of the same, with their texts. There are none of the form Name.
func (k *ClaimKind) ReferenceFields(c *Class) iter.Seq2[string, string] { return k.form.written(c) }

// AppendText appends a JSON string. It replaces invalid UTF-8, as encoding/json does.
func AppendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

// FieldsOf the references of a form: none of the form Name.
func FieldsOf(form v1alpha1.ReferenceForm) []string { return formOf(form).fields }

// ReferencePath is the path of the reference, with a leading dot.
func (k *ClaimKind) ReferencePath() string { return "." + k.classRef.String() }

// BoundTo reports whether a claim has its class reference, and for which classes it counts.
// A reference without a namespace may name a cluster-scoped class, or one in the
// namespace whose classes the claim is offered. A class kind has only one of the two.
func (k *ClaimKind) BoundTo(namespace string, object map[string]any) (classes [2]uint64, bound bool) {
	to, bound := k.refersTo(object)
	if !bound || k.unsettled(object) {
		return classes, false
	}
	return k.countsFor(namespace, to), true
}

// countsFor are the classes for which a reference counts.
func (k *ClaimKind) countsFor(namespace string, to named) (classes [2]uint64) {
	classes[0] = placeOf(to.group, to.kind, to.namespace, to.name)
	if namespace = k.looksIn(namespace); to.namespace == "" && namespace != "" {
		classes[1] = placeOf(to.group, to.kind, namespace, to.name)
	}
	return classes
}

// NamesClass reports whether the class reference of a claim has the name of a class.
func (k *ClaimKind) NamesClass(object map[string]any) bool {
	to, _ := k.refersTo(object)
	return to.name != ""
}

// refersTo is what the class reference of a claim says, false if it has none.
func (k *ClaimKind) refersTo(object map[string]any) (to named, bound bool) {
	value, _ := k.reference(k.classRef.lookup(object))
	if value == nil {
		return named{}, false
	}
	return k.form.read(value), true
}

// looksIn is the namespace of the namespaced class that a reference without a namespace
// names, in a claim of the given namespace. Where the form has a namespace, one without
// was stored without: the class is in the namespace of the claim.
func (k *ClaimKind) looksIn(namespace string) string {
	if len(k.names) > 0 && !k.form.namesNamespace { // It is one: see the schema.
		return k.names[0]
	}
	return namespace
}

// countedAs is the value that BoundTo returns for a class.
func (k *ClaimKind) countedAs(c *Class) uint64 {
	switch k.form.namesKind {
	case groupAndKind:
		return c.place
	case kindAlone:
		return c.groupless
	default:
		return c.kindless
	}
}

// Operation of a JSON Patch. The path is in RFC 6901 form, and consists of names of fields
// and of keys of labels and annotations, which need no escaping for JSON.
type Operation struct {
	op, path string
	value    jsontext.Value
}

// Patch is a JSON Patch (RFC 6902).
func Patch(operations ...Operation) []byte {
	b := append(make([]byte, 0, 256), '[')
	for i, o := range operations {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"op":"`...)
		b = append(b, o.op...)
		b = append(b, `","path":"`...)
		b = append(b, o.path...)
		b = append(b, `","value":`...)
		b = append(b, o.value...)
		b = append(b, '}')
	}
	return append(b, ']')
}

// Test that a field still has this value.
func Test(path, value string) Operation {
	return Operation{op: "test", path: path, value: AppendText(nil, value)}
}

// parents counts the objects on the path to the reference, and at its end, that a claim
// has. A reference that is an object is none yet, or the claim would be left alone.
func (k *ClaimKind) parents(object map[string]any) int {
	for i, name := range k.classRef {
		child, ok := object[name].(map[string]any)
		if !ok {
			return i
		}
		object = child
	}
	return len(k.classRef)
}

// lacks returns the field that the schema requires of a claim, if the claim with so many
// parents goes without its reference; empty if there is none. An empty name counts as none.
func (k *ClaimKind) lacks(parents int) string {
	if !k.required[parents] {
		return ""
	}
	if parents == len(k.classRef) {
		return "." + k.classRef.below("name").String()
	}
	return "." + k.classRef[:parents+1].String()
}

// Patch gives the claim its class, after these tests.
func (d *Decision) Patch(tests ...Operation) []byte {
	operations := append(make([]Operation, 0, 8), tests...) // The capacity saves an allocation.
	k, in := d.View.Kind, &d.Claim
	if in.Parents == len(k.classRef) {
		return Patch(k.addFields(d.removeFields(operations), in.Given, func(field string) string { return textIn(field, d.Class) })...)
	}
	return Patch(append(operations, k.addReference(in.Parents, k.Reference(d.Class)))...)
}

// removeFields appends what takes out of a reference that counts as none by bindWhen the fields
// that the reference to the class goes without. Otherwise it would name another class.
func (d *Decision) removeFields(to []Operation) []Operation {
	k, in := d.View.Kind, &d.Claim
	if !k.decides {
		return to
	}
	value, _ := k.classRef.lookup(in.Facts.Claim)
	reference, _ := value.(map[string]any)
	for _, field := range k.form.fields {
		if text := reference[field]; text != nil && text != "" && !in.Given.has(field) && textIn(field, d.Class) == "" {
			to = append(to, Operation{op: "remove", path: k.classRef.below(field).pointer(), value: jsontext.Value("null")})
		}
	}
	return to
}

// addReference adds a reference, and its missing parents; parents is how many the claim has.
func (k *ClaimKind) addReference(parents int, value jsontext.Value) Operation {
	for i := len(k.classRef) - 1; i > parents; i-- {
		value = fmt.Appendf(nil, `{"%s":%s}`, k.classRef[i], value)
	}
	return Operation{op: "add", path: k.pointers[parents], value: value}
}

// addFields appends what completes a reference that is there without a name. What its author
// has set stays.
func (k *ClaimKind) addFields(to []Operation, given *Given, textIn func(field string) string) []Operation {
	for _, field := range k.form.fields {
		if text := textIn(field); text != "" && !given.has(field) {
			to = append(to, Operation{op: "add", path: k.classRef.below(field).pointer(), value: AppendText(nil, text)})
		}
	}
	return to
}
