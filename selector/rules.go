package selector

import (
	"errors"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// rules are the expressions of a ClaimKind.
type rules struct {
	related        []relatedRule
	namespaces     *RelatedKind // nil if no expression looks at the namespace
	bindWhen       *expression.Expression
	selectorFrom   *expression.Expression
	fits           []*fit
	score          *expression.Expression
	partitionOf    *expression.Expression // of a claim
	partitionClass *expression.Expression
	// linked is what the fits of its class kinds look at in a claim, and linkedFits what their filters say.
	linked     []fields.Path
	linkedFits []linkedFit

	looks
}

// relatedRule says which object a claim names.
type relatedRule struct {
	kind *RelatedKind
	// objectName and objectNamespace are expressions for those of the object, the latter nil
	// if there is none. Their fields of the ClaimKind are for errors.
	objectName, objectNamespace *expression.Expression
	nameField, namespaceField   string
}

// classRules are the expressions of a ClassKind.
type classRules struct {
	fits                         []*fit
	offerWhen, isDefault, weight *expression.Expression

	looks
}

// looks are what the expressions of a registration look at, and those that do not compile.
type looks struct {
	claim, class, namespace []fields.Path
	related                 map[string][]fields.Path
	usesRequest             bool
	invalid                 []InvalidExpression
}

// InvalidExpression is an expression of a registration that does not compile.
type InvalidExpression struct {
	// Field of the registration, such as spec.fits[SameDriver].expression.
	Field string
	Err   *expression.Error
}

func (i InvalidExpression) Error() string { return i.Field + ": " + i.Err.Error() }

// InvalidClassExpressions of a ClassKind.
func InvalidClassExpressions(k *v1alpha1.ClassKind) []InvalidExpression {
	return newClassRules(k).invalid
}

// InvalidExpressions of the ClaimKind from which they were compiled.
func (r *rules) InvalidExpressions() []InvalidExpression { return r.invalid }

// UsesRequest reports whether expressions see who asks.
func (r *rules) UsesRequest() bool { return r.usesRequest }

// newRules of a ClaimKind, and of the ClassKinds that name it.
func newRules(k *v1alpha1.ClaimKind, classKinds []*v1alpha1.ClassKind) *rules {
	r := compileClaimRules(k)
	classKinds = slices.Clone(classKinds)
	slices.SortFunc(classKinds, func(a, b *v1alpha1.ClassKind) int { return strings.Compare(a.Name, b.Name) }) // A cache has no order.
	for _, ck := range classKinds {
		of := newClassRules(ck)
		r.linked = append(r.linked, of.claim...)
		for _, f := range of.fits {
			if !slices.ContainsFunc(r.linkedFits, func(l linkedFit) bool { return l.name == f.name }) {
				r.linkedFits = append(r.linkedFits, linkedFit{f.name, f.text})
			}
		}
	}
	return r
}

func compileClaimRules(k *v1alpha1.ClaimKind) *rules {
	r := &rules{}
	s := &k.Spec
	for i, related := range s.Related {
		field := "spec.related[" + related.Name + "]"
		before := scopeOf(s, i)
		rule := relatedRule{
			kind:      &RelatedKind{Name: related.Name, Resource: related.Resource, Version: related.Version},
			nameField: field + ".nameExpression", namespaceField: field + ".namespaceExpression",
		}
		rule.objectName = r.compile(rule.nameField, related.NameExpression, expression.Text, before)
		rule.objectNamespace = r.compile(rule.namespaceField, related.NamespaceExpression, expression.Text, before)
		r.related = append(r.related, rule)
	}
	ofClaim, ofBoth := scopeOfClaim(s), scopeOfClaim(s, expression.Class)
	r.bindWhen = r.compile("spec.bindWhen", s.BindWhen, expression.Bool, ofClaim)
	r.selectorFrom = r.compile("spec.classSelector.expression", s.ClassSelector.Expression, expression.Selector, ofClaim)
	for _, f := range s.Fits {
		r.addFit(&r.fits, f, ofBoth)
	}
	r.score = r.compile("spec.score", s.Score, expression.Number, ofBoth)
	if s.Partition != nil {
		r.partitionOf = r.compile("spec.partition.claim", s.Partition.Claim, expression.Text, ofClaim)
		r.partitionClass = r.compileGuarded("spec.partition.class", s.Partition.Class, expression.Text)
	}
	for i := range r.related {
		r.related[i].kind.Fields = expression.NewFields(r.looks.related[r.related[i].kind.Name]...)
	}
	if len(r.namespace) > 0 {
		r.namespaces = &RelatedKind{Resource: namespaces, Fields: expression.NewFields(r.namespace...)}
	}
	return r
}

// scopeOf an expression that sees the claim, its Namespace and the first of the related objects.
func scopeOf(s *v1alpha1.ClaimKindSpec, related int) expression.Scope {
	scope := expression.Scope{Variables: []string{expression.Claim, expression.Namespace, expression.Related}}
	for _, r := range s.Related[:related] {
		scope.Related = append(scope.Related, r.Name)
	}
	return scope
}

// scopeOfClaim adds who asks, which is not known of a claim that is bound later.
func scopeOfClaim(s *v1alpha1.ClaimKindSpec, more ...string) expression.Scope {
	scope := scopeOf(s, len(s.Related))
	scope.Variables = append(scope.Variables, more...)
	if s.WhenUnmatched != v1alpha1.BindLater {
		scope.Variables = append(scope.Variables, expression.Request)
	}
	return scope
}

var ofClassAlone = expression.Scope{Variables: []string{expression.Class}}

func newClassRules(k *v1alpha1.ClassKind) *classRules {
	r := &classRules{}
	for _, f := range k.Spec.Fits {
		r.addFit(&r.fits, f, expression.Scope{Variables: []string{expression.Claim, expression.Class}})
	}
	r.offerWhen = r.compile("spec.offerWhen", k.Spec.OfferWhen, expression.Bool, ofClassAlone)
	r.weight = r.compile("spec.weight.expression", k.Spec.Weight.Expression, expression.Number, ofClassAlone)
	r.isDefault = r.compileGuarded("spec.default.expression", k.Spec.Default.Expression, expression.Bool)
	return r
}

// compileGuarded is for an expression of the class alone that says which seat a class takes.
func (l *looks) compileGuarded(field string, text v1alpha1.Expression, result expression.Result) *expression.Expression {
	e := l.compile(field, text, result, ofClassAlone)
	if e != nil && looksAtStatus(e) {
		l.invalid = append(l.invalid, InvalidExpression{field, &expression.Error{
			Line: 1, Column: 1, Source: string(text),
			Text: "must not look at class.status: an update of the status of a class is not guarded",
		}})
	}
	return e
}

func looksAtStatus(e *expression.Expression) bool {
	return slices.ContainsFunc(e.Looks(expression.Class), func(p fields.Path) bool { return p[0] == "status" })
}

// compile an expression; nil if there is none, or it is invalid.
func (l *looks) compile(field string, text v1alpha1.Expression, result expression.Result, scope expression.Scope) *expression.Expression {
	if text == "" {
		return nil
	}
	e, err := expression.Compile(string(text), result, scope)
	if err != nil {
		invalid := &expression.Error{Line: 1, Column: 1, Text: err.Error(), Source: string(text)}
		_ = errors.As(err, &invalid)
		l.invalid = append(l.invalid, InvalidExpression{field, invalid})
		return nil
	}
	l.claim = append(l.claim, e.Looks(expression.Claim)...)
	l.class = append(l.class, e.Looks(expression.Class)...)
	l.namespace = append(l.namespace, e.Looks(expression.Namespace)...)
	for _, p := range e.Looks(expression.Related) {
		if l.related == nil {
			l.related = map[string][]fields.Path{}
		}
		l.related[p[0]] = append(l.related[p[0]], p[1:])
	}
	l.usesRequest = l.usesRequest || e.Uses(expression.Request)
	return e
}

// readsClaimAlone says that an expression can be evaluated as soon as the claim is read.
func readsClaimAlone(e *expression.Expression) bool {
	return !e.Uses(expression.Namespace) && !e.Uses(expression.Related) && !e.Uses(expression.Request)
}

// isEmpty says that there is no expression.
func (r *rules) isEmpty() bool {
	return len(r.related) == 0 && r.bindWhen == nil && r.selectorFrom == nil && len(r.fits) == 0 && r.score == nil &&
		r.partitionClass == nil
}

// fitLooks is what fits look at in a class.
func fitLooks(fits []*fit) (paths []fields.Path) {
	for _, f := range fits {
		paths = append(paths, f.looks...)
	}
	return paths
}

// Naming are the ClassKinds that name a ClaimKind: what is read of its claims depends on their
// expressions, too.
func Naming(claimKind string, all []v1alpha1.ClassKind) (naming []*v1alpha1.ClassKind) {
	for i := range all {
		if slices.Contains(all[i].Spec.ClaimKinds, claimKind) {
			naming = append(naming, &all[i])
		}
	}
	return naming
}

// NamedBy a ClassKind are these ClaimKinds: what is held of its classes depends on their
// expressions, too.
func NamedBy(k *v1alpha1.ClassKind, all []v1alpha1.ClaimKind) (named []*v1alpha1.ClaimKind) {
	for i := range all {
		if slices.Contains(k.Spec.ClaimKinds, all[i].Name) {
			named = append(named, &all[i])
		}
	}
	return named
}
