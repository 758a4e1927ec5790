// Package rules compiles the expressions of ClaimKinds and ClassKinds. It evaluates none.
package rules

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// ForClaims are the expressions of a ClaimKind.
type ForClaims struct {
	Related        []Relation
	Namespaces     *Kind // nil if no expression looks at the namespace, nor one of its class kinds
	BindWhen       *expression.Expression
	SelectorFrom   *expression.Expression
	Fits           []*Fit
	Score          *expression.Expression
	Seed           *expression.Expression
	Usage          []Usage
	PartitionOf    *expression.Expression // of a claim
	PartitionClass *expression.Expression
	// UsageReadsOthers reports whether the usage depends on more than the claim, and UsageLooks is then what it depends on in the claim.
	UsageReadsOthers bool
	UsageLooks       []fields.Path
	// Linked is what the fits of its class kinds look at in a claim, and linkedFits what their tests say.
	Linked     []fields.Path
	LinkedFits []LinkedFit

	looks

	// shared is what it was copied from, and stays in use with it.
	shared *ForClaims
}

// Relation says which object a claim names.
type Relation struct {
	Kind *Kind
	// ObjectName and objectNamespace are expressions for those of the object, the latter nil
	// if there is none. Their fields of the ClaimKind are for errors.
	ObjectName, ObjectNamespace *expression.Expression
	NameField, NamespaceField   string
}

// ForClasses are the expressions of a ClassKind.
type ForClasses struct {
	Fits                         []*Fit
	OfferWhen, IsDefault, Weight *expression.Expression
	// Limits are those of each quantity of the capacity, nil where there is no expression.
	Limits [][len(v1beta1.LimitFields)]*expression.Expression

	looks
}

// looks are what the expressions of a registration look at, and those that do not compile.
type looks struct {
	LooksAtClaim, LooksAtClass, LooksAtNamespace []fields.Path
	related                                      map[string][]fields.Path
	usesRequest                                  bool
	Invalid                                      []Invalid
	compiled                                     []compiledField
	budget                                       expression.Budget
}

func newLooks() looks { return looks{budget: expression.Budget{Left: v1beta1.MaxCompileCost}} }

// shares are what specs compile to, by their hash and type, for as long as something uses it. A ClaimKind is compiled for itself, for each
// class kind that serves it and for its conditions.
var shares sync.Map

type shareKey struct {
	hash [sha256.Size]byte
	of   reflect.Type
}

// share what a spec compiles to, and is never changed.
func share[T any](spec any, compile func() *T) *T {
	text, err := json.Marshal(spec)
	if err != nil {
		return compile()
	}
	key := shareKey{sha256.Sum256(text), reflect.TypeFor[T]()}
	if known, ok := shares.Load(key); ok {
		if value := known.(weak.Pointer[T]).Value(); value != nil {
			return value
		}
	}
	value := compile()
	pointer := weak.Make(value)
	shares.Store(key, pointer)
	runtime.AddCleanup(value, func(key shareKey) { shares.CompareAndDelete(key, pointer) }, key)
	return value
}

// compiledField is an expression of a registration, with its field.
type compiledField struct {
	field string
	*expression.Expression
}

// Invalid is an expression of a registration that does not compile.
type Invalid struct {
	// Field of the registration, such as spec.classes.fits[SameDriver].expression.
	Field string
	Err   *expression.Error
}

func (i Invalid) Error() string { return i.Field + ": " + i.Err.Error() }

// InvalidOfClasses of a ClassKind.
func InvalidOfClasses(k *v1beta1.ClassKind) []Invalid {
	return NewForClasses(k).Invalid
}

// InvalidExpressions of the registration from which they were compiled.
func (l *looks) InvalidExpressions() []Invalid { return l.Invalid }

// UsesRequest reports whether expressions see who asks.
func (r *ForClaims) UsesRequest() bool { return r.usesRequest }

// NewForClaims compiles the expressions of a ClaimKind, and notes what those of the ClassKinds that name it look at in claims and their
// Namespaces.
func NewForClaims(k *v1beta1.ClaimKind, classKinds ...*v1beta1.ClassKind) *ForClaims {
	shared := share(&k.Spec, func() *ForClaims { return compile(k) })
	r := &ForClaims{}
	*r = *shared
	r.shared = shared
	classKinds = slices.Clone(classKinds)
	slices.SortFunc(classKinds, func(a, b *v1beta1.ClassKind) int { return strings.Compare(a.Name, b.Name) }) // A cache has no order.
	namespace := slices.Clone(r.LooksAtNamespace)
	for _, ck := range classKinds {
		of := NewForClasses(ck)
		r.Linked = append(r.Linked, of.LooksAtClaim...)
		namespace = append(namespace, of.LooksAtNamespace...)
		for _, f := range of.Fits {
			if !slices.ContainsFunc(r.LinkedFits, func(l LinkedFit) bool { return l.Name == f.Name }) {
				r.LinkedFits = append(r.LinkedFits, LinkedFit{f.Name, f.Text})
			}
		}
	}
	if len(namespace) > 0 {
		r.Namespaces = &Kind{Resource: namespaces, Fields: expression.NewFields(namespace...)}
	}
	return r
}

func compile(k *v1beta1.ClaimKind) *ForClaims {
	r := &ForClaims{looks: newLooks()}
	s := &k.Spec
	for i, related := range s.Classes.Related {
		field := "spec.classes.related[" + related.Name + "]"
		before := scopeOf(s, i)
		rule := Relation{
			Kind:      &Kind{Name: related.Name, Resource: related.Resource, Version: related.Version},
			NameField: field + ".nameExpression", NamespaceField: field + ".namespaceExpression",
		}
		rule.ObjectName = r.compile(rule.NameField, related.NameExpression, expression.Text, before)
		rule.ObjectNamespace = r.compile(rule.NamespaceField, related.NamespaceExpression, expression.Text, before)
		r.Related = append(r.Related, rule)
	}
	ofClaim, ofBoth := Scope(s), Scope(s, expression.Class)
	r.BindWhen = r.compile("spec.claims.when", s.Claims.When, expression.Bool, ofClaim)
	r.SelectorFrom = r.compile("spec.selector.expression", s.Selector.Expression, expression.Selector, ofClaim)
	for _, f := range s.Classes.Fits {
		r.addFit(&r.Fits, "spec.classes.fits", f, ofBoth)
	}
	r.Score = r.compile("spec.choice.score", s.Choice.Score, expression.Number, ofBoth)
	r.Seed = r.compile(SeedField, s.Choice.Seed.Expression, expression.Text, ofClaim)
	r.addUsage(s)
	if s.Classes.Partition != nil {
		r.PartitionOf = r.compile("spec.classes.partition.claim", s.Classes.Partition.Claim, expression.Text, ofClaim)
		r.PartitionClass = r.compileGuarded("spec.classes.partition.class", s.Classes.Partition.Class, expression.Text)
	}
	for i := range r.Related {
		r.Related[i].Kind.Fields = expression.NewFields(r.related[r.Related[i].Kind.Name]...)
	}
	return r
}

// SeedField is the field of the expression for the seed of a draw.
const SeedField = "spec.choice.seed.expression"

// scopeOf an expression that sees the claim, its Namespace and the first of the related objects.
func scopeOf(s *v1beta1.ClaimKindSpec, related int) expression.Scope {
	scope := expression.Scope{Variables: []string{expression.Claim, expression.Namespace, expression.Related}}
	for _, r := range s.Classes.Related[:related] {
		scope.Related = append(scope.Related, r.Name)
	}
	return scope
}

// Scope adds who asks, which is not known of a claim that is bound later.
func Scope(s *v1beta1.ClaimKindSpec, more ...string) expression.Scope {
	scope := scopeOf(s, len(s.Classes.Related))
	scope.Variables = append(scope.Variables, more...)
	if s.WhenUnmatched != v1beta1.BindLater {
		scope.Variables = append(scope.Variables, expression.Request)
	}
	return scope
}

// ofFits is the scope of the fits of a ClassKind.
var ofFits = expression.Scope{Variables: []string{expression.Claim, expression.Class, expression.Namespace}}

var ofClassAlone = expression.Scope{Variables: []string{expression.Class}}

// NewForClasses compiles the expressions of a ClassKind.
func NewForClasses(k *v1beta1.ClassKind) *ForClasses {
	return share(&k.Spec, func() *ForClasses { return compileForClasses(k) })
}

func compileForClasses(k *v1beta1.ClassKind) *ForClasses {
	r := &ForClasses{looks: newLooks()}
	for _, f := range k.Spec.Fits {
		r.addFit(&r.Fits, "spec.fits", f, ofFits)
	}
	r.OfferWhen = r.compile("spec.offerWhen", k.Spec.OfferWhen, expression.Bool, ofClassAlone)
	r.Weight = r.compile("spec.weight.expression", k.Spec.Weight.Expression, expression.Number, ofClassAlone)
	r.IsDefault = r.compileGuarded("spec.default.expression", k.Spec.Default.Expression, expression.Bool)
	r.addLimits(k.Spec.Capacity)
	return r
}

// compileGuarded is for an expression of the class alone that says which seat a class takes.
func (l *looks) compileGuarded(field string, text v1beta1.Expression, result expression.Result) *expression.Expression {
	e := l.compile(field, text, result, ofClassAlone)
	if e != nil && looksAtStatus(e) {
		l.Invalid = append(l.Invalid, Invalid{field, &expression.Error{
			Line: 1, Column: 1, Source: string(text),
			Text: "must not look at class.status: an update of the status of a class is not guarded",
		}})
	}
	return e
}

func looksAtStatus(e *expression.Expression) bool {
	return slices.ContainsFunc(e.Looks(expression.Class), func(p fields.Path) bool { return p[0] == "status" })
}

// Mistyped are the expressions that fail for objects which the schemas of their kinds allow. Such an
// expression is evaluated nevertheless: it may do for others.
func (l *looks) Mistyped(ctx context.Context, of expression.TypeOf) (all []Invalid) {
	for _, c := range l.compiled {
		if ctx.Err() != nil {
			break
		}
		if wrong := (*expression.Error)(nil); errors.As(c.CheckTypes(of), &wrong) {
			all = append(all, Invalid{c.field, wrong})
		}
	}
	return all
}

// compile an expression; nil if there is none, or it is invalid.
func (l *looks) compile(field string, text v1beta1.Expression, result expression.Result, scope expression.Scope) *expression.Expression {
	if text == "" {
		return nil
	}
	e, err := expression.CompileWithin(string(text), result, scope, &l.budget)
	if err != nil {
		invalid := &expression.Error{Line: 1, Column: 1, Text: err.Error(), Source: string(text)}
		_ = errors.As(err, &invalid)
		l.Invalid = append(l.Invalid, Invalid{field, invalid})
		return nil
	}
	l.compiled = append(l.compiled, compiledField{field, e})
	l.LooksAtClaim = append(l.LooksAtClaim, e.Looks(expression.Claim)...)
	l.LooksAtClass = append(l.LooksAtClass, e.Looks(expression.Class)...)
	l.LooksAtNamespace = append(l.LooksAtNamespace, e.Looks(expression.Namespace)...)
	for _, p := range e.Looks(expression.Related) {
		if l.related == nil {
			l.related = map[string][]fields.Path{}
		}
		l.related[p[0]] = append(l.related[p[0]], p[1:])
	}
	l.usesRequest = l.usesRequest || e.Uses(expression.Request)
	return e
}

// ReadsClaimAlone reports whether an expression can be evaluated as soon as the claim is read.
func ReadsClaimAlone(e *expression.Expression) bool {
	return !e.Uses(expression.Namespace) && !e.Uses(expression.Related) && !e.Uses(expression.Request)
}

// IsEmpty reports whether there is no expression.
func (r *ForClaims) IsEmpty() bool {
	return len(r.Related) == 0 && r.BindWhen == nil && r.SelectorFrom == nil && len(r.Fits) == 0 && r.Score == nil &&
		r.Seed == nil && len(r.Usage) == 0 && r.PartitionClass == nil
}

// CoversNamespace reports whether all these paths are read of the claim's Namespace.
func (r *ForClaims) CoversNamespace(paths ...fields.Path) bool {
	return len(paths) == 0 || r.Namespaces != nil && r.Namespaces.Fields.Covers(paths...)
}

// FitLooks is what fits look at in a class.
func FitLooks(fits []*Fit) (paths []fields.Path) {
	for _, f := range fits {
		paths = append(paths, f.looks...)
	}
	return paths
}

// Serving are the ClassKinds that serve a ClaimKind, by name: what is read of its claims depends on their expressions, too.
func Serving(k *v1beta1.ClaimKind, all []v1beta1.ClassKind) []*v1beta1.ClassKind {
	return linked(all, func(c *v1beta1.ClassKind) bool { return c.Serves(k) })
}

// Served by a ClassKind are these ClaimKinds, by name: what is held of its classes depends on their expressions, too.
func Served(k *v1beta1.ClassKind, all []v1beta1.ClaimKind) []*v1beta1.ClaimKind {
	return linked(all, k.Serves)
}

func linked[K any, P interface {
	*K
	GetName() string
}](all []K, is func(P) bool) (linked []P) {
	for i := range all {
		if is(&all[i]) {
			linked = append(linked, &all[i])
		}
	}
	slices.SortFunc(linked, func(a, b P) int { return strings.Compare(a.GetName(), b.GetName()) })
	return linked
}

// ServedNames are the names of the ClaimKinds that a ClassKind serves: those that it names, and these.
func ServedNames(k *v1beta1.ClassKind, served []*v1beta1.ClaimKind) []string {
	names := make([]string, 0, len(k.Spec.ClaimKinds)+len(served))
	for _, named := range k.Spec.ClaimKinds {
		names = append(names, named.Name)
	}
	for _, c := range served {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
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

// Kind is a resource whose objects claims name: the related ones of ClaimKinds, and Namespaces.
type Kind struct {
	// Name of the object in expressions; empty for Namespaces, and for the kind of several.
	Name string
	// Resource is <plural>.<group>, and Version empty for the one that the API server prefers.
	Resource, Version string
	// Fields that expressions look at.
	Fields *expression.Fields
}

// Key identifies the kind.
func (k *Kind) Key() Key { return Key{k.Resource, k.Version} }

// MetadataOnly reports whether expressions look at nothing but metadata.
func (k *Kind) MetadataOnly() bool {
	return !slices.ContainsFunc(k.Fields.Paths(), func(p fields.Path) bool { return p[0] != "metadata" })
}

// Same reports whether the same fields of the same objects are looked at.
func (k *Kind) Same(o *Kind) bool {
	return k.Key() == o.Key() && slices.EqualFunc(k.Fields.Paths(), o.Fields.Paths(), slices.Equal)
}
