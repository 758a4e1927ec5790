package selector

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/fields"
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

// named is what a reference of any form can say of its class.
type named struct{ group, version, kind, namespace, name string }

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

// text in a field of the reference.
func (n named) text(field string) string {
	if field == apiVersion {
		return schema.GroupVersion{Group: n.group, Version: n.version}.String()
	}
	return *n.part(field)
}

// written are the fields of the reference to a class, with their texts. What is empty is left
// out: the core's group, and the namespace of a cluster-scoped class.
func (f *referenceForm) written(c named) iter.Seq2[string, string] {
	return func(yield func(field, text string) bool) {
		for _, field := range f.fields {
			if text := c.text(field); text != "" && !yield(field, text) {
				return
			}
		}
	}
}

func (f *referenceForm) write(c named) jsontext.Value {
	if len(f.fields) == 0 {
		return fields.AppendText(nil, c.name)
	}
	b := append(make([]byte, 0, 192), '{')
	for field, text := range f.written(c) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = fields.AppendText(b, field)
		b = append(b, ':')
		b = fields.AppendText(b, text)
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

// Given is what an author has set of a class reference, without the name: the claim gets a
// class that agrees with it.
type Given struct {
	// group counts only if hasGroup is set, because that of the core is empty.
	hasGroup               bool
	group, kind, namespace string
}

// agreesWith reports whether a reference has what is given. The version is the author's.
func (g *Given) agreesWith(to named) bool {
	return (!g.hasGroup || g.group == to.group) && (g.kind == "" || g.kind == to.kind) &&
		(g.namespace == "" || g.namespace == to.namespace)
}

// has reports whether a field of the reference is given.
func (g *Given) has(name string) bool {
	switch {
	case g == nil, name == "name":
		return false
	case name == "kind":
		return g.kind != ""
	case name == "namespace":
		return g.namespace != ""
	}
	return g.hasGroup // apiVersion, apiGroup or group
}

// text begins an Ask. parseGiven reads it.
func (g *Given) text() string {
	if g == nil {
		return ""
	}
	return fmt.Sprintf("@%t%q%q%q", g.hasGroup, g.group, g.kind, g.namespace)
}

// parseGiven returns what an Ask begins with, nil if that is nothing, and the rest.
func parseGiven(ask string) (given *Given, rest string, err error) {
	rest, ok := strings.CutPrefix(ask, "@")
	if !ok {
		return nil, ask, nil
	}
	given = &Given{}
	if rest, given.hasGroup = strings.CutPrefix(rest, "true"); !given.hasGroup {
		rest = strings.TrimPrefix(rest, "false")
	}
	for _, part := range []*string{&given.group, &given.kind, &given.namespace} {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil { // Given.text wrote it.
			return nil, "", fmt.Errorf("cannot parse %.100q: %w", rest, err)
		}
		rest = rest[len(quoted):]
		*part, _ = strconv.Unquote(quoted) // It is valid.
	}
	return given, rest, nil
}

// confuses says that no reference can tell the classes of two kinds apart.
func (f *referenceForm) confuses(a, b schema.GroupVersionKind) bool {
	return f.namesKind == noKind || f.namesKind == kindAlone && a.Kind == b.Kind
}
