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
	Shown          *Shown // to the chooser, nil without one
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

// ForClasses are the expressions of a ClassKind.
type ForClasses struct {
	Related                      []Relation
	FitsSeeRelated               bool // FitsSeeRelated reports whether a fit looks at an object that the class names.
	Fits                         []*Fit
	OfferWhen, IsDefault, Weight *expression.Expression
	// Limits are those of each quantity of the capacity, nil where there is no expression.
	Limits [][len(v1beta1.LimitFields)]*expression.Expression

	looks
}

// looks are what the expressions of a registration look at, and those that do not compile.
type looks struct {
	LooksAtClaim, LooksAtClass, LooksAtNamespace []fields.Path
	// LooksAtClassRelated begin with the name of the object, as those in related do.
	LooksAtClassRelated, related []fields.Path
	usesRequest                  bool
	Invalid                      []Invalid
	compiled                     []compiledField
	budget                       expression.Budget
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
		r.Related = append(r.Related, r.compileRelation("spec.classes.related", related, scopeOf(s, i)))
	}
	ofClaim, ofBoth := Scope(s), Scope(s, expression.Class, expression.ClassRelated)
	r.BindWhen = r.compile("spec.claims.when", s.Claims.When, expression.Bool, ofClaim)
	r.SelectorFrom = r.compile("spec.selector.expression", s.Selector.Expression, expression.Selector, ofClaim)
	for _, f := range s.Classes.Fits {
		r.addFit(&r.Fits, "spec.classes.fits", f, ofBoth)
	}
	r.Score = r.compile("spec.choice.score", s.Choice.Score, expression.Number, ofBoth)
	r.addShown(s.Choice.External)
	r.Seed = r.compile(SeedField, s.Choice.Seed.Expression, expression.Text, ofClaim)
	r.addUsage(s)
	if s.Classes.Partition != nil {
		r.PartitionOf = r.compile("spec.classes.partition.claim", s.Classes.Partition.Claim, expression.Text, ofClaim)
		r.PartitionClass = r.compileGuarded("spec.classes.partition.class", s.Classes.Partition.Class, expression.Text)
	}
	for i := range r.Related {
		r.Related[i].Kind.setFields(r.related)
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
		if r.Selector != nil {
			scope.Lists = append(scope.Lists, r.Name)
		}
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

// scopeOfClass is that of an expression of a ClassKind which sees the class, the first of the objects that the class names, and more.
func scopeOfClass(s *v1beta1.ClassKindSpec, related int, more ...string) expression.Scope {
	scope := expression.Scope{Variables: append([]string{expression.Class}, more...), ClassRelated: []string{}}
	for _, r := range s.Related[:related] {
		scope.ClassRelated = append(scope.ClassRelated, r.Name)
	}
	if related > 0 {
		scope.Variables = append(scope.Variables, expression.ClassRelated)
	}
	return scope
}

// ofClassAlone is the scope of what must be as it was when the class was reviewed.
var ofClassAlone = expression.Scope{Variables: []string{expression.Class}}

// NewForClasses compiles the expressions of a ClassKind.
func NewForClasses(k *v1beta1.ClassKind) *ForClasses {
	return share(&k.Spec, func() *ForClasses { return compileForClasses(k) })
}

func compileForClasses(k *v1beta1.ClassKind) *ForClasses {
	r, all := &ForClasses{looks: newLooks()}, len(k.Spec.Related)
	for i, related := range k.Spec.Related {
		r.Related = append(r.Related, r.compileRelation("spec.related", related, scopeOfClass(&k.Spec, i)))
	}
	before := len(r.LooksAtClassRelated)
	for _, f := range k.Spec.Fits {
		r.addFit(&r.Fits, "spec.fits", f, scopeOfClass(&k.Spec, all, expression.Claim, expression.Namespace))
	}
	r.FitsSeeRelated = len(r.LooksAtClassRelated) > before
	r.OfferWhen = r.compile("spec.offerWhen", k.Spec.OfferWhen, expression.Bool, ofClassAlone)
	ofClass := scopeOfClass(&k.Spec, all)
	r.Weight = r.compile("spec.weight.expression", k.Spec.Weight.Expression, expression.Number, ofClass)
	r.IsDefault = r.compileGuarded("spec.default.expression", k.Spec.Default.Expression, expression.Bool)
	r.addLimits(k.Spec.Capacity, ofClass)
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
	l.LooksAtClassRelated = append(l.LooksAtClassRelated, e.Looks(expression.ClassRelated)...)
	l.related = append(l.related, e.Looks(expression.Related)...)
	l.usesRequest = l.usesRequest || e.Uses(expression.Request)
	return e
}

// ReadsClaimAlone reports whether an expression can be evaluated as soon as the claim is read.
func ReadsClaimAlone(e *expression.Expression) bool {
	return !e.Uses(expression.Namespace) && !e.Uses(expression.Related) && !e.Uses(expression.Request)
}

// IsEmpty reports whether there is no expression, and no chooser.
func (r *ForClaims) IsEmpty() bool {
	return len(r.Related) == 0 && r.BindWhen == nil && r.SelectorFrom == nil && len(r.Fits) == 0 && r.Score == nil &&
		r.Shown == nil && r.Seed == nil && len(r.Usage) == 0 && r.PartitionClass == nil
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
