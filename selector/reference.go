package selector

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1alpha1"
)

// referenceFields are those that tell which class a reference names, in any form.
var referenceFields = []string{"apiVersion", "apiGroup", "kind", "namespace", "name"}

// Reference to a class in the form that claims of this kind take. It carries no
// uid: restored from a backup, the class would have another.
func (k *ClaimKind) Reference(c *Class) jsontext.Value {
	gvk := c.Kind.GroupVersionKind
	switch k.format {
	case v1alpha1.TypedLocalObjectReference:
		return texts("apiGroup", gvk.Group, "kind", gvk.Kind, "name", c.Name)
	case v1alpha1.LocalObjectReference:
		return texts("name", c.Name)
	case v1alpha1.Name:
		return appendText(nil, c.Name)
	default:
		return texts("apiVersion", gvk.GroupVersion().String(), "kind", gvk.Kind, "namespace", c.Namespace, "name", c.Name)
	}
}

// texts are an object of names of fields, each before its text. What is empty is
// left out: the group of the core, and the namespace of a class that has none.
func texts(fields ...string) jsontext.Value {
	b := append(make([]byte, 0, 192), '{')
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = appendText(b, fields[i])
		b = append(b, ':')
		b = appendText(b, fields[i+1])
	}
	return append(b, '}')
}

// appendText as a JSON string. What is no UTF-8 is replaced, as encoding/json does.
func appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

// ReferencePath is where the reference is.
func (k *ClaimKind) ReferencePath() string { return "." + k.classRef.String() }

func (k *ClaimKind) namesKind() bool {
	return k.format == v1alpha1.ObjectReference || k.format == v1alpha1.TypedLocalObjectReference
}

// BoundTo says whether a claim has its class reference, and as the claims of
// which classes it counts. A reference that names no namespace is to the
// cluster-scoped class of that name, or to the one in the namespace whose classes
// the claim is offered: a class kind has one of the two.
func (k *ClaimKind) BoundTo(namespace string, object map[string]any) (classes [2]uint64, bound bool) {
	value, _ := k.classRef.lookup(object)
	if value == nil {
		return classes, false
	}
	var group, kind, name string
	fields, _ := value.(map[string]any)
	text := func(field string) string {
		s, _ := fields[field].(string)
		return s
	}
	switch k.format {
	case v1alpha1.Name:
		name, _ = value.(string)
	case v1alpha1.LocalObjectReference:
		name = text("name")
	case v1alpha1.TypedLocalObjectReference:
		group, kind, name = text("apiGroup"), text("kind"), text("name")
	default:
		if g, _, ok := strings.Cut(text("apiVersion"), "/"); ok {
			group = g
		}
		classes[0] = placeOf(group, text("kind"), text("namespace"), text("name"))
		return classes, true
	}
	classes[0] = placeOf(group, kind, "", name)
	if len(k.names) > 0 { // It is one: see the schema.
		namespace = k.names[0]
	}
	if namespace != "" {
		classes[1] = placeOf(group, kind, namespace, name)
	}
	return classes, true
}

// countedAs is the class's place among those that BoundTo gives.
func (k *ClaimKind) countedAs(c *Class) uint64 {
	if k.namesKind() {
		return c.place
	}
	return c.kindless
}
