package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// Relation says which object a claim, or a class, names.
type Relation struct {
	Kind *Kind
	// ObjectName and objectNamespace are expressions for those of the object, the latter nil
	// if there is none. Their fields of the registration are for errors.
	ObjectName, ObjectNamespace *expression.Expression
	NameField, NamespaceField   string
}

// compileRelation of a list of related objects, such as spec.related.
func (l *looks) compileRelation(list string, of v1beta1.Related, before expression.Scope) Relation {
	field := list + "[" + of.Name + "]"
	r := Relation{
		Kind:      &Kind{Name: of.Name, Resource: of.Resource, Version: of.Version},
		NameField: field + ".nameExpression", NamespaceField: field + ".namespaceExpression",
	}
	r.ObjectName = l.compile(r.NameField, of.NameExpression, expression.Text, before)
	r.ObjectNamespace = l.compile(r.NamespaceField, of.NamespaceExpression, expression.Text, before)
	if e := l.compile(field+".validUntil", of.ValidUntil, expression.Time, scopeOfObject); e != nil {
		r.Kind.Expiries = append(r.Kind.Expiries, e)
	}
	return r
}

// RelatedFor are the objects that classes name, with all fields at which the ClassKind and some ClaimKinds look.
func (r *ForClasses) RelatedFor(claimKinds ...*v1beta1.ClaimKind) []Relation {
	looks := slices.Clone(r.LooksAtClassRelated)
	for _, k := range claimKinds {
		looks = append(looks, NewForClaims(k).LooksAtClassRelated...)
	}
	all := slices.Clone(r.Related)
	for i := range all {
		kind := *all[i].Kind
		kind.setFields(looks)
		all[i].Kind = &kind
	}
	return all
}

// setFields to those at which expressions look, of the paths in related objects.
func (k *Kind) setFields(looks []fields.Path) {
	looks = OfObject(looks, k.Name)
	for _, e := range k.Expiries {
		looks = append(looks, e.Looks(expression.RelatedObject)...)
	}
	k.Fields = expression.NewFields(looks...)
}

// scopeOfObject is that of when an object expires.
var scopeOfObject = expression.Scope{Variables: []string{expression.RelatedObject}}

// IsLate reports whether the name of the object depends on the objects before it.
func (r *Relation) IsLate() bool {
	uses := func(e *expression.Expression) bool { return e != nil && e.Uses(expression.ClassRelated) }
	return uses(r.ObjectName) || uses(r.ObjectNamespace)
}

// OfObject are the paths in the related object of this name, of those that begin with a name.
func OfObject(all []fields.Path, name string) (paths []fields.Path) {
	for _, p := range all {
		if p[0] == name {
			paths = append(paths, p[1:])
		}
	}
	return paths
}

// namespaces is the resource of what expressions see as namespace.
const namespaces = "namespaces"

// Key identifies a related kind.
type Key struct{ Resource, Version string }

// String is RESOURCE, or RESOURCE/VERSION.
func (k Key) String() string {
	if k.Version == "" {
		return k.Resource
	}
	return k.Resource + "/" + k.Version
}

// Kind is a resource whose objects claims or classes name: the related ones of registrations, and Namespaces.
type Kind struct {
	// Name of the object in expressions; empty for Namespaces, and for the kind of several.
	Name string
	// Resource is <plural>.<group>, and Version empty for the one that the API server prefers.
	Resource, Version string
	// Fields that expressions look at.
	Fields *expression.Fields
	// Expiries are expressions for the time from which on an object counts as absent, each once: that of a relation has one at most.
	Expiries []*expression.Expression
}

// expired is the time of an object whose expiry fails.
var expired = time.Unix(0, 0)

// Until is when an object expires, by each of the expiries. The zero time is never.
func (k *Kind) Until(o *expression.Object) (all []time.Time) {
	budget := expression.Budget{Left: v1beta1.MaxClassExpressionCost}
	for _, e := range k.Expiries {
		until, err := e.Time(&expression.Input{Object: o}, &budget)
		if err != nil {
			until = expired
		}
		all = append(all, until)
	}
	return all
}

// Valid is an object, nil if it is expired, or none.
func (k *Kind) Valid(o *expression.Object, now time.Time) *expression.Object {
	if o != nil && slices.ContainsFunc(k.Until(o), func(until time.Time) bool { return !until.IsZero() && !until.After(now) }) {
		return nil
	}
	return o
}

// Expiry is the position of the expiry of a relation among all of the kind, -1 if it has none, or it is not known.
func (k *Kind) Expiry(of *Kind) int {
	if len(of.Expiries) == 0 {
		return -1
	}
	return slices.IndexFunc(k.Expiries, func(e *expression.Expression) bool { return e.String() == of.Expiries[0].String() })
}

// Covers reports whether the objects are held with all that is needed of them.
func (k *Kind) Covers(needed *Kind) bool {
	for _, e := range needed.Expiries {
		if k.Expiry(&Kind{Expiries: []*expression.Expression{e}}) < 0 {
			return false
		}
	}
	return k.Fields.Covers(needed.Fields.Paths()...)
}

// Key identifies the kind.
func (k *Kind) Key() Key { return Key{k.Resource, k.Version} }

// MetadataOnly reports whether expressions look at nothing but metadata.
func (k *Kind) MetadataOnly() bool {
	return !slices.ContainsFunc(k.Fields.Paths(), func(p fields.Path) bool { return p[0] != "metadata" })
}

// Union has each of some kinds once, with the fields of all, sorted. Nil kinds are left out.
func Union(kinds ...*Kind) []*Kind {
	looks, expiries := map[Key][]fields.Path{}, map[Key][]*expression.Expression{}
	for _, k := range kinds {
		if k != nil {
			looks[k.Key()] = append(looks[k.Key()], k.Fields.Paths()...)
			expiries[k.Key()] = append(expiries[k.Key()], k.Expiries...)
		}
	}
	union := make([]*Kind, 0, len(looks))
	for key, paths := range looks {
		byText := func(a, b *expression.Expression) int { return strings.Compare(a.String(), b.String()) }
		all := slices.SortedFunc(slices.Values(expiries[key]), byText)
		all = slices.CompactFunc(all, func(a, b *expression.Expression) bool { return byText(a, b) == 0 })
		union = append(union, &Kind{Resource: key.Resource, Version: key.Version, Fields: expression.NewFields(paths...), Expiries: all})
	}
	slices.SortFunc(union, func(a, b *Kind) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Version, b.Version))
	})
	return union
}

// Kinds of some relations.
func Kinds(of []Relation) []*Kind {
	kinds := make([]*Kind, len(of))
	for i := range of {
		kinds[i] = of[i].Kind
	}
	return kinds
}

// Same reports whether the same fields of the same objects are looked at.
func (k *Kind) Same(o *Kind) bool {
	return k.Key() == o.Key() && len(k.Expiries) == len(o.Expiries) && k.Covers(o) &&
		slices.EqualFunc(k.Fields.Paths(), o.Fields.Paths(), slices.Equal)
}
