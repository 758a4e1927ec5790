package openapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// Types are the schemas of what expressions see, by variable: of a claim or a class those of all kinds that may be meant, nil for
// one that is not known. A related object is related.NAME, or classRelated.NAME, and those of a list are related.NAME[].
type Types map[string][]*Schema

// TypeOf the field of a variable at a path, empty if it is not known, or not the same in all schemas. The error means that
// none of them has the field: see expression.TypeOf.
func (t Types) TypeOf(variable string, p fields.Path) (string, error) {
	if variable == expression.Namespace && len(p) > 1 && p[0] == "metadata" { // Every Namespace has that.
		return (*Schema)(nil).typeOf(variable, p)
	}
	schemas, ok := t[variable]
	if !ok && len(p) > 0 {
		variable, p = variable+"."+p[0], p[1:]
		if _, isList := t[variable+fields.Element]; isList {
			if len(p) == 0 {
				return "array", nil
			}
			variable, p = variable+p[0], p[1:] // An expression looks at nothing but the elements.
		}
		schemas = t[variable]
	}
	var missing error
	var found []string
	for _, s := range schemas {
		if s == nil {
			return "", nil
		}
		is, err := s.typeOf(variable, p)
		if err != nil {
			missing = err
		} else if !slices.Contains(found, is) {
			found = append(found, is)
		}
	}
	switch len(found) {
	case 0:
		return "", missing
	case 1:
		return found[0], nil
	}
	return "", nil
}

// Source looks schemas up: those of a ClaimKind's claims, and that of a resource in a version, or in the preferred one if that is
// empty. Both return nil for one that is not known.
type Source struct {
	OfClaims func(*v1beta1.ClaimKind) *Schema
	Of       func(resource, version string) *Schema
}

// MistypedOfClaims are the expressions of a ClaimKind that fail by the schemas of what they look at.
func (s Source) MistypedOfClaims(ctx context.Context, k *v1beta1.ClaimKind, classKinds []*v1beta1.ClassKind) []rules.Invalid {
	of := rules.NewForClaims(k)
	types := Types{}
	if len(of.LooksAtClaim) > 0 {
		types[expression.Claim] = []*Schema{s.OfClaims(k)}
	}
	s.addExpiring(types, of.Related)
	for _, r := range of.Related {
		if len(r.Kind.Fields.Paths()) > 0 {
			name := expression.Related + "." + r.Kind.Name
			if r.IsList() {
				name += fields.Element
			}
			types[name] = []*Schema{s.Of(r.Kind.Resource, r.Kind.Version)}
		}
	}
	for _, c := range classKinds {
		if len(of.LooksAtClass) > 0 {
			types[expression.Class] = append(types[expression.Class], s.Of(c.Name, ""))
		}
		s.addClassRelated(types, rules.NewForClasses(c).Related, of.LooksAtClassRelated)
	}
	return of.Mistyped(ctx, types.TypeOf)
}

// addExpiring adds the schemas of the objects that expire. Nothing is known of their fields if their schemas differ.
func (s Source) addExpiring(types Types, related []rules.Relation) {
	for _, r := range related {
		if len(r.Kind.Expiries) > 0 {
			types[expression.RelatedObject] = append(types[expression.RelatedObject], s.Of(r.Kind.Resource, r.Kind.Version))
		}
	}
}

// addClassRelated adds the schemas of the objects that classes of a kind name, where expressions look at these.
func (s Source) addClassRelated(types Types, related []rules.Relation, looks []fields.Path) {
	for _, r := range related {
		if len(rules.OfObject(looks, r.Kind.Name)) > 0 {
			name := expression.ClassRelated + "." + r.Kind.Name
			types[name] = append(types[name], s.Of(r.Kind.Resource, r.Kind.Version))
		}
	}
}

// MistypedOfClasses are those of a ClassKind, which serves some ClaimKinds.
func (s Source) MistypedOfClasses(ctx context.Context, k *v1beta1.ClassKind, claimKinds []*v1beta1.ClaimKind) []rules.Invalid {
	of := rules.NewForClasses(k)
	types := Types{expression.Class: {s.Of(k.Name, "")}}
	if len(of.LooksAtClaim) > 0 {
		for _, c := range claimKinds {
			types[expression.Claim] = append(types[expression.Claim], s.OfClaims(c))
		}
	}
	s.addClassRelated(types, of.Related, of.LooksAtClassRelated)
	s.addExpiring(types, of.Related)
	return of.Mistyped(ctx, types.TypeOf)
}

// ofMetadata are the fields of an object's metadata, with the types of those that have no parts.
var ofMetadata = map[string]string{
	"name": "string", "generateName": "string", "namespace": "string", "uid": "string", "resourceVersion": "string", "selfLink": "string",
	"generation": "integer", "creationTimestamp": "string", "deletionTimestamp": "string", "deletionGracePeriodSeconds": "integer",
	"labels": "object", "annotations": "object", "ownerReferences": "array", "finalizers": "array", "managedFields": "array",
}

func (s *Schema) typeOf(variable string, p fields.Path) (string, error) {
	if len(p) > 1 && p[0] == "metadata" { // The schema of a CRD need not have it.
		is, ok := ofMetadata[p[1]]
		switch {
		case !ok:
			return "", missingField(variable, p, meant(p[1], maps.Keys(ofMetadata)))
		case len(p) == 2:
			return is, nil
		}
		return "", nil
	}
	f := s.At(p)
	mistyped := (*typeError)(nil)
	switch {
	case errors.Is(f.Err, ErrMissing):
		return "", missingField(variable, p, s.Meant(p))
	case errors.As(f.Err, &mistyped):
		is := truncate.String(mistyped.is, v1beta1.MaxShownBytes)
		return "", fmt.Errorf("%s is of type %s, and has no fields", shown(variable, f.UpTo), is)
	case errors.Is(f.Err, errList):
		return "", fmt.Errorf("%s is a list: its elements have the fields", shown(variable, f.UpTo))
	case f.Err == nil && !f.Schema.IntOrString:
		return f.Schema.Type, nil
	}
	return "", nil
}

func missingField(variable string, p fields.Path, meant string) error {
	if meant == "" {
		return fmt.Errorf("the schema has no field %s", shown(variable, p))
	}
	return fmt.Errorf("the schema has no field %s: did you mean %s?", shown(variable, p), shown(variable, p[:len(p)-1].Below(meant)))
}

// shown is a path as an expression has it.
func shown(variable string, p fields.Path) string {
	return truncate.String(p.Shown(variable), v1beta1.MaxShownBytes)
}
