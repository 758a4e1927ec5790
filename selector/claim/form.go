package claim

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
)

// Form is how a class reference is written and read.
type Form struct {
	Name v1beta1.ReferenceForm
	// Fields of the reference, in the order in which they are written. A reference without any is a text, the name of the class.
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

// Forms has all of them, those that say more first. A new form is a new row. What stands in a field follows from its name.
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
	all := f.Parts()
	switch {
	case all.Group != "":
		f.NamesKind = GroupAndKind
	case all.Kind != "":
		f.NamesKind = KindAlone
	}
	f.NamesNamespace = all.Namespace != ""
	return f
}

// formOf returns a form by its name, and ObjectReference for an unknown or empty name.
func formOf(name v1beta1.ReferenceForm) *Form {
	i := slices.IndexFunc(Forms, func(f Form) bool { return f.Name == name })
	return &Forms[max(i, 0)]
}

// Parts are the names of the fields, each at what stands in it.
func (f *Form) Parts() (all Target) {
	for _, field := range f.Fields {
		*all.part(field) = field
	}
	return all
}

// IsPart reports whether the references of some form have the field.
func IsPart(field string) bool {
	return slices.ContainsFunc(Forms, func(f Form) bool { return slices.Contains(f.Fields, field) })
}

// HasVersion reports whether a version follows the group, in its field.
func (f *Form) HasVersion() bool { return slices.Contains(f.Fields, apiVersion) }

// Confuses reports whether no reference can distinguish the classes of two kinds.
func (f *Form) Confuses(a, b schema.GroupVersionKind) bool {
	return f.NamesKind == NoKind || f.NamesKind == KindAlone && a.Kind == b.Kind
}

// isBegun reports whether a reference has some of the fields of its form, and no other.
func (f *Form) isBegun(reference map[string]any) (begun bool) {
	for name, value := range reference {
		if !slices.Contains(f.Fields, name) {
			return false
		}
		begun = begun || value != nil && value != ""
	}
	return begun
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
