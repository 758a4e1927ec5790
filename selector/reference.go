package selector

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1alpha1"
)

// referenceForm is how a class reference is written and read.
type referenceForm struct {
	name v1alpha1.ReferenceForm
	// namesKind says that a reference names the class's kind, and namesNamespace that it
	// names its namespace.
	namesKind, namesNamespace bool
	write                     func(*Class) jsontext.Value
	// fields of a claim's reference that read asks for.
	fields []string
	// read a reference: its text, in the form Name, or its fields.
	read func(text string, field func(string) string) named
}

// named is what a reference says of its class.
type named struct{ group, kind, namespace, name string }

// referenceForms has all of them. A new form is a new row.
var referenceForms = []referenceForm{
	{
		name: v1alpha1.ObjectReference, namesKind: true, namesNamespace: true,
		write: func(c *Class) jsontext.Value {
			gvk := c.Kind.GroupVersionKind
			return texts("apiVersion", gvk.GroupVersion().String(), "kind", gvk.Kind, "namespace", c.Namespace, "name", c.Name)
		},
		fields: []string{"apiVersion", "kind", "namespace", "name"},
		read: func(_ string, field func(string) string) named {
			group, _, ok := strings.Cut(field("apiVersion"), "/")
			if !ok { // It is a version of the core's.
				group = ""
			}
			return named{group, field("kind"), field("namespace"), field("name")}
		},
	},
	{
		name: v1alpha1.TypedLocalObjectReference, namesKind: true,
		write: func(c *Class) jsontext.Value {
			gvk := c.Kind.GroupVersionKind
			return texts("apiGroup", gvk.Group, "kind", gvk.Kind, "name", c.Name)
		},
		fields: []string{"apiGroup", "kind", "name"},
		read: func(_ string, field func(string) string) named {
			return named{group: field("apiGroup"), kind: field("kind"), name: field("name")}
		},
	},
	{
		name:   v1alpha1.LocalObjectReference,
		write:  func(c *Class) jsontext.Value { return texts("name", c.Name) },
		fields: []string{"name"},
		read:   func(_ string, field func(string) string) named { return named{name: field("name")} },
	},
	{
		name:  v1alpha1.Name,
		write: func(c *Class) jsontext.Value { return AppendText(nil, c.Name) },
		read:  func(text string, _ func(string) string) named { return named{name: text} },
	},
}

// formOf returns a form by its name, and ObjectReference for an unknown or empty name.
func formOf(name v1alpha1.ReferenceForm) *referenceForm {
	i := slices.IndexFunc(referenceForms, func(f referenceForm) bool { return f.name == name })
	return &referenceForms[max(i, 0)]
}

// Reference to a class, in the form that claims of this kind take. It has no uid,
// because a class that is restored from a backup has another.
func (k *ClaimKind) Reference(c *Class) jsontext.Value { return k.form.write(c) }

// texts makes an object of field names, each followed by its text. It leaves out empty
// texts: the core's group, and the namespace of a cluster-scoped class.
func texts(fields ...string) jsontext.Value {
	b := append(make([]byte, 0, 192), '{')
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = AppendText(b, fields[i])
		b = append(b, ':')
		b = AppendText(b, fields[i+1])
	}
	return append(b, '}')
}

// AppendText appends a JSON string. It replaces invalid UTF-8, as encoding/json does.
func AppendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

// ReferencePath is the path of the reference, with a leading dot.
func (k *ClaimKind) ReferencePath() string { return "." + k.classRef.String() }

// BoundTo says whether a claim has its class reference, and for which classes it counts.
// A reference without a namespace may name a cluster-scoped class, or one in the
// namespace whose classes the claim is offered. A class kind has only one of the two.
func (k *ClaimKind) BoundTo(namespace string, object map[string]any) (classes [2]uint64, bound bool) {
	to, bound := k.refersTo(object)
	if !bound {
		return classes, false
	}
	classes[0] = placeOf(to.group, to.kind, to.namespace, to.name)
	if k.form.namesNamespace {
		return classes, true
	}
	if namespace = k.looksIn(namespace); namespace != "" {
		classes[1] = placeOf(to.group, to.kind, namespace, to.name)
	}
	return classes, true
}

// NamesClass says whether the class reference of a claim has the name of a class.
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
	text, _ := value.(string)
	fields, _ := value.(map[string]any)
	return k.form.read(text, func(name string) string {
		s, _ := fields[name].(string)
		return s
	}), true
}

// looksIn is the namespace of the namespaced class that a reference without a namespace
// names, in a claim of the given namespace.
func (k *ClaimKind) looksIn(namespace string) string {
	if len(k.names) > 0 { // It is one: see the schema.
		return k.names[0]
	}
	return namespace
}

// countedAs is the value that BoundTo returns for a class.
func (k *ClaimKind) countedAs(c *Class) uint64 {
	if k.form.namesKind {
		return c.place
	}
	return c.kindless
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

// Patch gives the claim its class, after these tests.
func (d *Decision) Patch(tests ...Operation) []byte {
	operations := append(make([]Operation, 0, 8), tests...) // The capacity saves an allocation.
	return Patch(d.View.Kind.addReference(operations, d.Claim.Parents, d.Claim.Given, d.View.Kind.Reference(d.Class))...)
}

// addReference appends what adds a reference, and its missing parents; parents is how many
// the claim has. If the reference itself is there, without a name, what its author has set
// stays, and only the fields of the form are added.
func (k *ClaimKind) addReference(to []Operation, parents int, given *Given, value jsontext.Value) []Operation {
	if parents == len(k.classRef) {
		var fields map[string]string
		_ = json.Unmarshal(value, &fields) // The fields of the form are texts; others do not matter.
		for _, name := range k.form.fields {
			if text := fields[name]; text != "" && !given.has(name) {
				to = append(to, Operation{op: "add", path: k.classRef.below(name).pointer(), value: AppendText(nil, text)})
			}
		}
		return to
	}
	for i := len(k.classRef) - 1; i > parents; i-- {
		value = fmt.Appendf(nil, `{"%s":%s}`, k.classRef[i], value)
	}
	return append(to, Operation{op: "add", path: k.classRef[:parents+1].pointer(), value: value})
}
