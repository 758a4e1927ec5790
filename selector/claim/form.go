package claim

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

// Form is how a class reference is written and read.
type Form struct {
	Name v1beta1.ReferenceForm
	// Fields of the reference, in the order in which they are written. A reference without
	// any is a text, the name of the class.
	Fields []string

	NamesKind      KindNaming
	NamesNamespace bool
}

// KindNaming is what a reference says of the kind of its class.
type KindNaming int8

// What a reference says of the kind: nothing, the kind alone, or its group, too.
const (
	NoKind KindNaming = iota
	KindAlone
	GroupAndKind
)

// Forms has all of them, those that say more first. A new form is a new row. What
// stands in a field follows from its name.
var Forms = []Form{
	newForm(v1beta1.ObjectReference, "apiVersion", "kind", "namespace", "name"),
	newForm(v1beta1.TypedObjectReference, "apiGroup", "kind", "namespace", "name"),
	newForm(v1beta1.TypedLocalObjectReference, "apiGroup", "kind", "name"),
	newForm(v1beta1.GroupKindReference, "group", "kind", "name"),
	newForm(v1beta1.KindReference, "kind", "name"),
	newForm(v1beta1.NamespacedReference, "namespace", "name"),
	newForm(v1beta1.LocalObjectReference, "name"),
	newForm(v1beta1.Name),
}

func newForm(name v1beta1.ReferenceForm, fields ...string) Form {
	f := Form{Name: name, Fields: fields}
	var all Target
	for _, field := range fields {
		*all.part(field) = field
	}
	switch {
	case all.Group != "":
		f.NamesKind = GroupAndKind
	case all.Kind != "":
		f.NamesKind = KindAlone
	}
	f.NamesNamespace = all.Namespace != ""
	return f
}

// apiVersion is the field that has a version, too. Which one does not matter.
const apiVersion = "apiVersion"

// Target is what a reference of any form can say of its class.
type Target struct {
	schema.GroupVersionKind

	Namespace, Name string
}

// part that stands in a field of a reference. In an apiVersion, a version
// follows the group.
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

// written are the fields of the reference to a class, with their texts. What is empty is left
// out: the core's group, and the namespace of a cluster-scoped class.
func (f *Form) written(c Target) iter.Seq2[string, string] {
	return func(yield func(field, text string) bool) {
		for _, field := range f.Fields {
			if text := c.Text(field); text != "" && !yield(field, text) {
				return
			}
		}
	}
}

func (f *Form) write(c Target) jsontext.Value {
	if len(f.Fields) == 0 {
		return fields.AppendText(nil, c.Name)
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
func (f *Form) read(value any) (to Target) {
	if len(f.Fields) == 0 {
		to.Name, _ = value.(string)
		return to
	}
	object, _ := value.(map[string]any)
	for _, field := range f.Fields {
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
func formOf(name v1beta1.ReferenceForm) *Form {
	i := slices.IndexFunc(Forms, func(f Form) bool { return f.Name == name })
	return &Forms[max(i, 0)]
}

// Given is what an author has set of a class reference, without the name: the claim gets a
// class that agrees with it.
type Given struct {
	// group counts only if hasGroup is set, because that of the core is empty.
	HasGroup               bool
	Group, Kind, Namespace string
}

// AgreesWith reports whether a reference has what is given. The version is the author's.
func (g *Given) AgreesWith(to Target) bool {
	return (!g.HasGroup || g.Group == to.Group) && (g.Kind == "" || g.Kind == to.Kind) &&
		(g.Namespace == "" || g.Namespace == to.Namespace)
}

// has reports whether a field of the reference is given.
func (g *Given) has(name string) bool {
	switch {
	case g == nil, name == "name":
		return false
	case name == "kind":
		return g.Kind != ""
	case name == "namespace":
		return g.Namespace != ""
	}
	return g.HasGroup // apiVersion, apiGroup or group
}

// text begins an Ask. parseGiven reads it.
func (g *Given) text() string {
	if g == nil {
		return ""
	}
	return fmt.Sprintf("@%t%q%q%q", g.HasGroup, g.Group, g.Kind, g.Namespace)
}

// parseGiven returns what an Ask begins with, nil if that is nothing, and the rest.
func parseGiven(ask string) (given *Given, rest string, err error) {
	rest, ok := strings.CutPrefix(ask, "@")
	if !ok {
		return nil, ask, nil
	}
	given = &Given{}
	if rest, given.HasGroup = strings.CutPrefix(rest, "true"); !given.HasGroup {
		rest = strings.TrimPrefix(rest, "false")
	}
	for _, part := range []*string{&given.Group, &given.Kind, &given.Namespace} {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil { // Given.text wrote it.
			return nil, "", fmt.Errorf("cannot parse %.100q: %w", rest, err)
		}
		rest = rest[len(quoted):]
		*part, _ = strconv.Unquote(quoted) // It is valid.
	}
	return given, rest, nil
}

// Confuses says that no reference can tell the classes of two kinds apart.
func (f *Form) Confuses(a, b schema.GroupVersionKind) bool {
	return f.NamesKind == NoKind || f.NamesKind == KindAlone && a.Kind == b.Kind
}
