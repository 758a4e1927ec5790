package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
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
	if of.Selector != nil {
		r.Kind.Selectors = []labels.Selector{l.compileSelector(field+".selector", of.Selector)}
	}
	r.ObjectName = l.compile(r.NameField, of.NameExpression, expression.Text, before)
	r.ObjectNamespace = l.compile(r.NamespaceField, of.NamespaceExpression, expression.Text, before)
	if e := l.compile(field+".validUntil", of.ValidUntil, expression.Time, scopeOfObject); e != nil {
		r.Kind.Expiries = append(r.Kind.Expiries, e)
	}
	return r
}

// compileSelector of related objects. An invalid one selects none.
func (l *looks) compileSelector(field string, of *v1beta1.LabelSelector) labels.Selector {
	terms := len(of.MatchLabels) + len(of.MatchExpressions)
	for _, e := range of.MatchExpressions {
		terms += len(e.Values)
	}
	selector, err := metav1.LabelSelectorAsSelector(of.Meta())
	if terms > v1beta1.MaxRelatedSelectorTerms {
		err = fmt.Errorf("must have at most %d labels, expressions and values, has %d", v1beta1.MaxRelatedSelectorTerms, terms)
	}
	if err == nil {
		return textSelector{selector, selector.String()}
	}
	text := truncate.String(metav1.FormatLabelSelector(of.Meta()), v1beta1.MaxShownBytes)
	l.Invalid = append(l.Invalid, Invalid{field, &expression.Error{
		Line: 1, Column: 1, Text: truncate.String(err.Error(), v1beta1.MaxMessageBytes), Source: text,
	}})
	return textSelector{labels.Nothing(), "!"} // No selector has this text, so no other registration gets it for its own.
}

// textSelector keeps its text, by which each claim finds the objects that it selects.
type textSelector struct {
	labels.Selector

	text string
}

// String implements labels.Selector.
func (s textSelector) String() string { return s.text }

// IsList reports whether expressions see a list of objects.
func (r *Relation) IsList() bool { return len(r.Kind.Selectors) > 0 }

// NeedsNamespace says what a list of objects in a namespace lacks for claims that have none.
func (r *Relation) NeedsNamespace() string {
	return fmt.Sprintf("%s: must be set, because the claims have no namespace, and %s have one", r.NamespaceField, r.Kind.Resource)
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
	for _, s := range k.Selectors {
		requirements, _ := s.Requirements()
		for i := range requirements {
			looks = append(looks, labelPath(requirements[i].Key()))
		}
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

// OfObject are the paths in the related object of this name, or in those of a list, of the paths that begin with a name.
func OfObject(all []fields.Path, name string) (paths []fields.Path) {
	for _, p := range all {
		switch {
		case p[0] != name:
		case p[1] == fields.Element:
			paths = append(paths, p[2:])
		default:
			paths = append(paths, p[1:])
		}
	}
	return paths
}

func labelPath(key string) fields.Path { return fields.Path{"metadata", "labels", key} }

// Selects reports whether one of the selectors selects an object.
func (k *Kind) Selects(o *expression.Object, selector int) bool {
	set := labels.Set{}
	requirements, _ := k.Selectors[selector].Requirements()
	for i := range requirements {
		key := requirements[i].Key()
		if value, ok := o.Lookup(labelPath(key)); ok {
			set[key], _ = value.(string) // All labels are strings.
		}
	}
	return k.Selectors[selector].Matches(set)
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
	// Selectors of objects, each once: a relation has one if expressions see a list.
	Selectors []labels.Selector
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

// Selector is the position of the selector of a relation with a list among all of the kind, -1 if it is not known.
func (k *Kind) Selector(of *Kind) int {
	return slices.IndexFunc(k.Selectors, func(s labels.Selector) bool { return s.String() == of.Selectors[0].String() })
}

// Covers reports whether the objects are held with all that is needed of them.
func (k *Kind) Covers(needed *Kind) bool {
	for _, e := range needed.Expiries {
		if k.Expiry(&Kind{Expiries: []*expression.Expression{e}}) < 0 {
			return false
		}
	}
	for _, s := range needed.Selectors {
		if k.Selector(&Kind{Selectors: []labels.Selector{s}}) < 0 {
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
	all := map[Key]*Kind{}
	looks := map[Key][]fields.Path{}
	for _, k := range kinds {
		if k == nil {
			continue
		}
		key := k.Key()
		if all[key] == nil {
			all[key] = &Kind{Resource: key.Resource, Version: key.Version}
		}
		looks[key] = append(looks[key], k.Fields.Paths()...)
		all[key].Expiries = append(all[key].Expiries, k.Expiries...)
		all[key].Selectors = append(all[key].Selectors, k.Selectors...)
	}
	union := make([]*Kind, 0, len(all))
	for key, k := range all {
		k.Fields, k.Expiries, k.Selectors = expression.NewFields(looks[key]...), byText(k.Expiries), byText(k.Selectors)
		union = append(union, k)
	}
	slices.SortFunc(union, func(a, b *Kind) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Version, b.Version))
	})
	return union
}

// byText sorts, and leaves each out that has the text of another one.
func byText[T fmt.Stringer](all []T) []T {
	compare := func(a, b T) int { return strings.Compare(a.String(), b.String()) }
	all = slices.SortedFunc(slices.Values(all), compare)
	return slices.CompactFunc(all, func(a, b T) bool { return compare(a, b) == 0 })
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
	return k.Key() == o.Key() && len(k.Expiries) == len(o.Expiries) && len(k.Selectors) == len(o.Selectors) && k.Covers(o) &&
		slices.EqualFunc(k.Fields.Paths(), o.Fields.Paths(), slices.Equal)
}
