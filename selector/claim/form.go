package claim

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

// Form is how a class reference is written and read: a list of parts.
type Form struct {
	Name v1beta1.ReferenceForm // empty for a list that a registration gives
	// Parts in the order in which they are written.
	Parts []Part
	// IsObject reports whether the reference is an object that has the parts. Otherwise they are among other fields.
	IsObject bool

	NamesKind      KindNaming
	NamesNamespace bool
}

// Part is one of the values in a reference.
type Part struct {
	Role v1beta1.PartRole
	// Path of the part in a claim, and the same in RFC 6901 form. Of a form without a place, they start where the reference is.
	Path    fields.Path
	Pointer string
	// Default is what an absent part means. A Flag is true for the kind Of, and means Default otherwise.
	Default, Of string
}

// maxParts is how many a reference has at most, as its CRD does.
const maxParts = 4

// KindNaming is what a reference says of the kind of its class.
type KindNaming int8

// What a reference says of the kind: nothing, the kind alone, or its group, too.
const (
	NoKind KindNaming = iota
	KindAlone
	GroupAndKind
)

// roles are what the fields of the named forms say.
var roles = map[string]v1beta1.PartRole{
	"apiVersion": v1beta1.APIVersionPart,
	"apiGroup":   v1beta1.GroupPart,
	"group":      v1beta1.GroupPart,
	"kind":       v1beta1.KindPart,
	"namespace":  v1beta1.NamespacePart,
	"name":       v1beta1.NamePart,
}

// Forms has those with a name, those that say more first. A new form is a new row, or a list of parts in a registration.
var Forms = []Form{
	namedForm(v1beta1.ObjectReference, "apiVersion", "kind", "namespace", "name"),
	namedForm(v1beta1.TypedObjectReference, "apiGroup", "kind", "namespace", "name"),
	namedForm(v1beta1.TypedLocalObjectReference, "apiGroup", "kind", "name"),
	namedForm(v1beta1.GroupKindReference, "group", "kind", "name"),
	namedForm(v1beta1.KindReference, "kind", "name"),
	namedForm(v1beta1.NamespacedReference, "namespace", "name"),
	namedForm(v1beta1.LocalObjectReference, "name"),
	newForm(v1beta1.Name, false, Part{Role: v1beta1.NamePart}),
}

func namedForm(name v1beta1.ReferenceForm, all ...string) Form {
	parts := make([]Part, len(all))
	for i, field := range all {
		parts[i] = Part{Role: roles[field], Path: fields.Path{field}}
	}
	return newForm(name, true, parts...)
}

func newForm(name v1beta1.ReferenceForm, isObject bool, parts ...Part) Form {
	f := Form{Name: name, IsObject: isObject, Parts: parts}
	switch {
	case f.Part(v1beta1.GroupPart) != nil, f.Part(v1beta1.APIVersionPart) != nil:
		f.NamesKind = GroupAndKind
	case f.Part(v1beta1.KindPart) != nil, f.Part(v1beta1.FlagPart) != nil:
		f.NamesKind = KindAlone
	}
	f.NamesNamespace = f.Part(v1beta1.NamespacePart) != nil
	return f
}

// formOf a reference, at its place, or that of an element of a list, without a place. A form that is unknown or empty is ObjectReference.
func formOf(of *v1beta1.Reference) *Form {
	isElement, all := of.List != "", of.Parts[:min(len(of.Parts), maxParts)]
	if !slices.ContainsFunc(all, func(p v1beta1.ReferencePart) bool { return p.Is == v1beta1.NamePart }) {
		form := &Forms[max(slices.IndexFunc(Forms, func(f Form) bool { return f.Name == of.Form }), 0)]
		if isElement {
			return form
		}
		return form.At(of.Names())
	}
	var parts []Part
	for _, p := range all {
		at := fields.Path(p.Names())
		if isElement {
			at = at[len(at)-1:]
		}
		parts = append(parts, Part{Role: p.Is, Path: at, Pointer: at.Pointer(), Default: p.Default, Of: p.Of})
	}
	f := newForm("", of.Place != (v1beta1.Place{}), parts...)
	return &f
}

// At returns the form at a place.
func (f *Form) At(place fields.Path) *Form {
	at := *f
	at.Parts = slices.Clone(f.Parts)
	for i := range at.Parts {
		p := &at.Parts[i]
		p.Path = slices.Concat(place, p.Path)
		p.Pointer = p.Path.Pointer()
	}
	return &at
}

// String is what users call the form.
func (f *Form) String() string {
	if f.Name != "" {
		return "form " + string(f.Name)
	}
	return "parts"
}

// Part with a role, nil if the form has none.
func (f *Form) Part(role v1beta1.PartRole) *Part {
	if i := slices.IndexFunc(f.Parts, func(p Part) bool { return p.Role == role }); i >= 0 {
		return &f.Parts[i]
	}
	return nil
}

// IsPart reports whether the references of some named form have the field.
func IsPart(field string) bool { return roles[field] != "" }

// Confuses reports whether no reference can distinguish the classes of two kinds.
func (f *Form) Confuses(a, b schema.GroupVersionKind) bool {
	return f.NamesKind == NoKind || f.NamesKind == KindAlone && a.Kind == b.Kind
}

// isBegun reports whether an object has some of the parts, and no other fields.
func (f *Form) isBegun(reference map[string]any) (begun bool) {
	for name, value := range reference {
		if !f.hasField(name) {
			return false
		}
		begun = begun || value != nil && value != ""
	}
	return begun
}

func (f *Form) hasField(name string) bool {
	return slices.ContainsFunc(f.Parts, func(p Part) bool { return p.Field() == name })
}

// Field is the name of the field that has the part, or the key of the label or annotation.
func (p *Part) Field() string { return p.Path[len(p.Path)-1] }

// in returns the value of the part in a claim, or in an element of a list, nil if it has none.
func (p *Part) in(value any) any {
	return lookUp(p.Path, value)
}

// lookUp a path in a value that may be no object. An empty one is that of the value itself.
func lookUp(p fields.Path, value any) any {
	if len(p) > 0 {
		object, _ := value.(map[string]any)
		value, _ = p.Lookup(object)
	}
	return value
}

// Type of the values of the part, as a schema has it.
func (p *Part) Type() string {
	if p.Role == v1beta1.FlagPart {
		return "boolean"
	}
	return "string"
}

// isText reports whether a value is a string with something in it.
func isText(value any) bool {
	text, _ := value.(string)
	return text != ""
}

// isEmpty reports whether a value says nothing of a class.
func isEmpty(value any) bool { return value == nil || value == "" }

// read what the parts say in a claim, or in an element of a list.
func (f *Form) read(value any) (to Target) {
	for i := range f.Parts {
		to.set(&f.Parts[i], f.Parts[i].in(value))
	}
	return to
}

// Of is what the part of a reference to a class says, empty where it is left out: for the core's group, for the namespace of a
// cluster-scoped class, and for a Flag that is false.
func (n Target) Of(p *Part) string {
	switch p.Role {
	case v1beta1.APIVersionPart:
		return schema.GroupVersion{Group: n.Group, Version: n.Version}.String()
	case v1beta1.FlagPart:
		if n.Kind == p.Of {
			return flagSet
		}
		return ""
	default:
		return *n.value(p.Role)
	}
}

// flagSet is the text of a Flag that is true.
const flagSet = "true"

// append the JSON of a part to a patch.
func (p *Part) append(to []byte, text string) []byte {
	if p.Role == v1beta1.FlagPart {
		return append(to, text...)
	}
	return fields.AppendText(to, text)
}

// set what a part says. An absent or empty one means its default. It is false for a value that is not a string, or not a boolean.
func (n *Target) set(p *Part, value any) (ok bool) {
	if p.Role == v1beta1.FlagPart {
		isSet, ok := orZero[bool](value)
		if n.Kind = p.Default; isSet {
			n.Kind = p.Of
		}
		return ok
	}
	text, ok := orZero[string](value)
	text = cmp.Or(text, p.Default)
	if p.Role == v1beta1.APIVersionPart {
		group, _, isGrouped := strings.Cut(text, "/")
		if text = group; !isGrouped { // It is a version of the core's.
			text = ""
		}
	}
	*n.value(p.Role) = text
	return ok
}

// Target is what a reference of any form can say of its class.
type Target struct {
	schema.GroupVersionKind

	Namespace, Name string
}

// value that a part says.
func (n *Target) value(role v1beta1.PartRole) *string {
	switch role {
	case v1beta1.GroupPart, v1beta1.APIVersionPart:
		return &n.Group
	case v1beta1.KindPart, v1beta1.FlagPart:
		return &n.Kind
	case v1beta1.NamespacePart:
		return &n.Namespace
	default:
		return &n.Name
	}
}
