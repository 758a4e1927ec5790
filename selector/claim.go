package selector

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
)

// ClaimKind is a registered kind of claim, compiled once.
type ClaimKind struct {
	// Name is <plural>.<group>.
	Name string
	// Revision of the ClaimKind from which it was compiled.
	Revision Revision
	// Deny refuses a claim for which there is no class.
	Deny bool
	// BindLater binds a claim for which there is no class when there is one.
	BindLater bool
	// Strategy chooses among several candidates.
	Strategy Strategy
	// Tally of the claims, for the strategies that count them. Nil counts none.
	Tally *Tally

	format        v1alpha1.ClassRefFormat
	classRef      path
	selector      path
	selectorField *field.Path
	settledBy     []path // classRef and skipIfSet
	fields        fields // that lead to any of these
	freshSeeds    bool
	turns         *Turns
}

// NewClaimKind compiles a ClaimKind.
func NewClaimKind(k *v1alpha1.ClaimKind) *ClaimKind {
	c := &ClaimKind{
		Name:       k.Name,
		Revision:   RevisionOf(k),
		Deny:       k.Spec.WhenUnmatched == v1alpha1.Deny,
		BindLater:  k.Spec.WhenUnmatched == v1alpha1.BindLater,
		Strategy:   strategies[k.Spec.Strategy],
		settledBy:  []path{newPath(k.Spec.Paths.ClassRef)},
		format:     k.Spec.ClassRefFormat,
		classRef:   newPath(k.Spec.Paths.ClassRef),
		selector:   newPath(k.Spec.Paths.ClassSelector),
		freshSeeds: k.Spec.Seed == v1alpha1.SeedRequest,
	}
	c.Strategy.Name = k.Spec.Strategy
	if c.Strategy.InTurn {
		c.turns = &Turns{}
	}
	c.selectorField = c.selector.field()
	for _, p := range k.Spec.Paths.SkipIfSet {
		c.settledBy = append(c.settledBy, newPath(p))
	}
	c.fields = newFields(slices.Concat(c.settledBy, []path{c.selector}, claimFields)...)
	return c
}

// Revision of a registration. One that is deleted and created again has another uid.
type Revision struct {
	UID        types.UID
	Generation int64
}

// RevisionOf a ClaimKind or ClassKind.
func RevisionOf(registration metav1.Object) Revision {
	return Revision{UID: registration.GetUID(), Generation: registration.GetGeneration()}
}

// Claim is what choosing needs to know of a claim.
type Claim struct {
	// Name is empty while the API server has yet to generate it.
	Namespace, Name string
	// Selector is nil for a claim that has no opinion.
	Selector labels.Selector
	// Settled names the field for which the claim is left alone; empty, it is ours to bind.
	Settled string
}

// NewClaim reads a claim of this kind. Its errors are its author's.
func (k *ClaimKind) NewClaim(namespace, name string, object map[string]any) (Claim, field.ErrorList) {
	c := Claim{Namespace: namespace, Name: name}
	var errs field.ErrorList
	for _, p := range k.settledBy {
		v, err := p.lookup(object)
		if v != nil {
			c.Settled = p.String()
			return c, nil
		}
		if err != nil && len(errs) == 0 {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return c, errs
	}
	c.Selector, errs = k.classSelector(object)
	return c, errs
}

// Where the annotation is, made once: every claim is asked for it.
var (
	selectorAnnotation      = path{"metadata", "annotations", v1alpha1.ClassSelectorAnnotation}
	selectorAnnotationField = field.NewPath("metadata", "annotations").Key(v1alpha1.ClassSelectorAnnotation)
)

func (k *ClaimKind) classSelector(object map[string]any) (labels.Selector, field.ErrorList) {
	value, err := k.selector.lookup(object)
	if err != nil {
		return nil, field.ErrorList{err}
	}
	text, err := selectorAnnotation.lookup(object)
	switch {
	case err != nil:
		return nil, field.ErrorList{err}
	case value != nil && text != nil:
		return nil, field.ErrorList{field.Forbidden(selectorAnnotationField, "give either the annotation or the field "+k.selector.String()+", not both")}
	case value != nil:
		return parseSelector(value, k.selectorField)
	case text != nil:
		return parseSelectorText(text, selectorAnnotationField)
	}
	return nil, nil
}

func parseSelector(value any, at *field.Path) (labels.Selector, field.ErrorList) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, field.ErrorList{field.TypeInvalid(at, value, "must be an object, a label selector")}
	}
	s, wrong := readSelector(object, at)
	if wrong != nil {
		return nil, field.ErrorList{wrong}
	}
	if errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at); len(errs) > 0 {
		return nil, errs
	}
	if len(s.MatchExpressions) == 0 {
		return labels.SelectorFromValidatedSet(s.MatchLabels), nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(s) // It validates everything again.
	if err != nil {
		return nil, field.ErrorList{field.Invalid(at, value, err.Error())}
	}
	return parsed, nil
}

// readSelector strictly: an unknown field that is passed over would widen the
// selector, at worst to every class.
func readSelector(object map[string]any, at *field.Path) (*metav1.LabelSelector, *field.Error) {
	if err := onlyFields(object, at, "matchLabels", "matchExpressions"); err != nil {
		return nil, err
	}
	matchLabels, ok := orZero[map[string]any](object["matchLabels"])
	if !ok {
		return nil, field.TypeInvalid(at.Child("matchLabels"), object["matchLabels"], "must be an object")
	}
	matchExpressions, ok := orZero[[]any](object["matchExpressions"])
	if !ok {
		return nil, field.TypeInvalid(at.Child("matchExpressions"), object["matchExpressions"], "must be a list")
	}
	s := &metav1.LabelSelector{}
	if len(matchLabels) > 0 {
		s.MatchLabels = make(map[string]string, len(matchLabels))
	}
	for key, value := range matchLabels {
		if s.MatchLabels[key], ok = orZero[string](value); !ok {
			return nil, field.TypeInvalid(at.Child("matchLabels").Key(key), value, "must be a string")
		}
	}
	for i, value := range matchExpressions {
		requirement, err := readRequirement(value, at.Child("matchExpressions").Index(i))
		if err != nil {
			return nil, err
		}
		s.MatchExpressions = append(s.MatchExpressions, requirement)
	}
	return s, nil
}

func readRequirement(value any, at *field.Path) (r metav1.LabelSelectorRequirement, _ *field.Error) {
	object, ok := orZero[map[string]any](value)
	if !ok {
		return r, field.TypeInvalid(at, value, "must be an object")
	}
	if err := onlyFields(object, at, "key", "operator", "values"); err != nil {
		return r, err
	}
	if r.Key, ok = orZero[string](object["key"]); !ok {
		return r, field.TypeInvalid(at.Child("key"), object["key"], "must be a string")
	}
	operator, ok := orZero[string](object["operator"])
	if !ok {
		return r, field.TypeInvalid(at.Child("operator"), object["operator"], "must be a string")
	}
	r.Operator = metav1.LabelSelectorOperator(operator)
	values, ok := orZero[[]any](object["values"])
	if !ok {
		return r, field.TypeInvalid(at.Child("values"), object["values"], "must be a list")
	}
	for i, v := range values {
		text, ok := orZero[string](v)
		if !ok {
			return r, field.TypeInvalid(at.Child("values").Index(i), v, "must be a string")
		}
		r.Values = append(r.Values, text)
	}
	return r, nil
}

func onlyFields(object map[string]any, at *field.Path, names ...string) *field.Error {
	for name := range object {
		if !slices.Contains(names, name) {
			return field.Invalid(at, object, fmt.Sprintf("unknown field %q", name))
		}
	}
	return nil
}

// orZero is a value of that type, which null stands for, too.
func orZero[T any](value any) (t T, ok bool) {
	if value == nil {
		return t, true
	}
	t, ok = value.(T)
	return t, ok
}

func parseSelectorText(value any, at *field.Path) (labels.Selector, field.ErrorList) {
	text, ok := value.(string)
	if !ok {
		return nil, field.ErrorList{field.TypeInvalid(at, value, "must be a string")}
	}
	// kubectl takes an empty selector for that of everything. In an annotation it
	// is more likely a template's unset value, and binding is for good.
	if strings.TrimSpace(text) == "" {
		return nil, field.ErrorList{field.Required(at, "must be a selector, such as tier=gold; leave the annotation out for the default class")}
	}
	parsed, err := labels.Parse(text)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(at, text, err.Error())}
	}
	return parsed, nil
}

// Seed of the draw for a claim: the claim's identity, or the fresh one where
// it has none yet or the kind asks for it.
func (k *ClaimKind) Seed(c Claim, fresh uint64) uint64 {
	if k.drawsAfresh(c) {
		return fresh
	}
	return hashOf(k.Name, c.Namespace, c.Name)
}

// Group of the claims of this kind that have the same candidates.
func (k *ClaimKind) Group(c Claim) string {
	group := ""
	if c.Selector != nil {
		group = "=" + c.Selector.String()
	}
	if !k.namesNamespace() {
		group = c.Namespace + group
	}
	return group
}

func (k *ClaimKind) drawsAfresh(c Claim) bool { return k.freshSeeds || c.Name == "" }
