package selector

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1alpha1"
)

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

func (k *ClaimKind) namesNamespace() bool {
	return k.format == v1alpha1.ObjectReference
}

func (k *ClaimKind) namesKind() bool {
	return k.format == v1alpha1.ObjectReference || k.format == v1alpha1.TypedLocalObjectReference
}

// fault is why no claim can be bound to these classes, nil if one can.
func (k *ClaimKind) fault(classes []*Classes) *Fault {
	if k.Strategy.place == nil {
		return &Fault{v1alpha1.ReasonUnknownStrategy, fmt.Sprintf("claim kind %q has the strategy %q, which this release of classbind does not know", k.Name, k.Strategy.Name)}
	}
	if len(classes) <= 1 || k.namesKind() {
		return nil
	}
	names := make([]string, len(classes))
	for i, s := range classes {
		names[i] = s.Kind.Name
	}
	return &Fault{v1alpha1.ReasonAmbiguousReference, fmt.Sprintf("claim kind %q has class kinds %q, which a reference of the form %s cannot tell apart: set spec.classRefFormat to ObjectReference or TypedLocalObjectReference, or leave one class kind", k.Name, names, k.format)}
}

// BoundTo says whether a claim has its class reference, and as the claims of
// which classes it counts. A reference that names no namespace is to the
// cluster-scoped class of that name, or to the one in the claim's own namespace:
// a class kind has one of the two.
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
		classes[0] = hashOf(group, text("kind"), text("namespace"), text("name"))
		return classes, true
	}
	classes[0] = hashOf(group, kind, "", name)
	if namespace != "" {
		classes[1] = hashOf(group, kind, namespace, name)
	}
	return classes, true
}

// countedAs is the class's hash among those that BoundTo gives.
func (k *ClaimKind) countedAs(c *Class) uint64 {
	if k.namesKind() {
		return c.sum
	}
	return c.kindless
}
