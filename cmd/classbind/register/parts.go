package register

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/truncate"
)

// reference at the place, as a ClaimKind has it.
func (p *place) reference() v1beta1.Reference {
	r := v1beta1.Reference{Place: p.Place, Parts: p.parts}
	if p.isList {
		r.List = v1beta1.ListWhenAbsent
	}
	switch {
	case len(p.parts) > 0 && !p.form.IsObject:
		r.Place = v1beta1.Place{}
	case len(p.parts) == 0 && p.form != nil:
		r.Form = p.form.Name
	}
	return r
}

// beyond finds the parts of a reference that its form does not have. It returns an error if no list of parts has them.
func (s search) beyond(p *place) error {
	namespaced := slices.ContainsFunc(s.classes, func(k kind) bool { return k.Namespaced })
	clusterScoped := slices.ContainsFunc(s.classes, func(k kind) bool { return !k.Namespaced })
	refuse := func(at fields.Path, why string) error {
		return fmt.Errorf("%s cannot be registered with its reference at %s: no reference writes %s, which says %s",
			s.of.name, p, truncate.String(shown(at), v1beta1.MaxShownBytes), why)
	}
	part := func(role v1beta1.PartRole, at fields.Path) v1beta1.ReferencePart {
		return v1beta1.ReferencePart{Is: role, Place: fieldAt(at).Place}
	}
	whole := p.schemaPath()
	if namespace := whole.Below("namespace"); p.form.Name == v1beta1.GroupKindReference && s.schema.At(namespace).Is("string").Err == nil {
		for _, role := range []v1beta1.PartRole{v1beta1.GroupPart, v1beta1.KindPart, v1beta1.NamespacePart, v1beta1.NamePart} {
			field := strings.ToLower(string(role))
			has := part(role, p.path.Below(field))
			has.Default = defaultOf(s.schema.At(whole.Below(field)).Schema)
			p.parts = append(p.parts, has)
		}
		return nil
	}
	if p.form.IsObject && p.form.NamesKind == claim.NoKind && clusterScoped {
		for _, field := range slices.Sorted(maps.Keys(s.schema.At(whole).Schema.Properties)) {
			at := whole.Below(field)
			if s.schema.At(at).Schema.Type != "boolean" || !strings.Contains(strings.ToLower(field), "cluster") {
				continue
			}
			flag := part(v1beta1.FlagPart, at)
			if flag.Of, flag.Default = s.flagged(); flag.Of == "" {
				return refuse(at, "whether the class has a namespace")
			}
			flag.Path = v1beta1.FieldPath("." + p.path.Below(field).String())
			p.parts = []v1beta1.ReferencePart{part(v1beta1.NamePart, p.path.Below("name")), flag}
		}
	}
	if p.form.IsObject || p.isList || p.path.IsKey() {
		return nil
	}
	name, parent := p.path[len(p.path)-1], p.path[:len(p.path)-1]
	for _, sibling := range slices.Sorted(maps.Keys(s.schema.At(parent).Schema.Properties)) {
		at, lower := parent.Below(sibling), strings.ToLower(sibling)
		f := s.schema.At(at).Schema
		for _, stem := range slices.Compact([]string{strings.ToLower(name), stemOf(name)}) {
			role, ok := strings.CutPrefix(lower, stem)
			switch {
			case !ok || f.Type != "string" || f.Default != nil:
			case role == "namespace" && namespaced:
				p.parts = append(p.parts, part(v1beta1.NamespacePart, at))
			case slices.Contains([]string{"kind", "group", "apigroup", "apiversion"}, role):
				return refuse(at, "which kind of class it is")
			}
		}
	}
	if len(p.parts) > 0 {
		p.parts = append(p.parts, part(v1beta1.NamePart, p.path))
	}
	return nil
}

// defaultOf a field is the string that the schema gives it, empty if there is none.
func defaultOf(f openapi.FieldSchema) (text string) {
	_ = json.Unmarshal(f.Default, &text) // There is none, or one of another type.
	return text
}

// flagged are the Kinds that a flag of a reference distinguishes: that of cluster-scoped classes, which is called ClusterNAME, and NAME.
// They are empty if the classes are not called so.
func (s search) flagged() (of, otherwise string) {
	for _, class := range s.classes {
		if name, ok := strings.CutPrefix(class.Kind, "Cluster"); ok && !class.Namespaced {
			of, otherwise = class.Kind, name
		} else {
			of, otherwise = "Cluster"+class.Kind, class.Kind
		}
		for _, c := range s.classes {
			if c.Kind != of && c.Kind != otherwise || c.Namespaced != (c.Kind == otherwise) {
				return "", ""
			}
		}
	}
	return of, otherwise
}
