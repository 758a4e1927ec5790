package selector

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	reach
	// unknown is what this release does not know of the registration, nil if it knows all.
	unknown       *Fault
	format        v1alpha1.ClassRefFormat
	classRef      path
	selector      path
	selectorField *field.Path
	settledBy     []path    // classRef and skipIfSet
	plan          *readPlan // of the fields that lead to any of these
	freshSeeds    bool
	turns         *Turns
}

// NewClaimKind compiles a ClaimKind.
func NewClaimKind(k *v1alpha1.ClaimKind) *ClaimKind {
	strategy := cmp.Or(k.Spec.Strategy, v1alpha1.WeightedRandom)
	c := &ClaimKind{
		Name:       k.Name,
		Revision:   RevisionOf(k),
		Deny:       k.Spec.WhenUnmatched == v1alpha1.Deny,
		BindLater:  k.Spec.WhenUnmatched == v1alpha1.BindLater,
		Strategy:   strategies[strategy],
		reach:      newReach(k.Spec.ClassNamespaces),
		unknown:    unknownValue(k),
		settledBy:  []path{newPath(k.Spec.Paths.ClassRef)},
		format:     k.Spec.ClassRefFormat,
		classRef:   newPath(k.Spec.Paths.ClassRef),
		selector:   newPath(k.Spec.Paths.ClassSelector),
		freshSeeds: k.Spec.Seed == v1alpha1.SeedRequest,
	}
	c.Strategy.Name = strategy
	if c.Strategy.InTurn {
		c.turns = &Turns{}
	}
	c.selectorField = c.selector.field()
	for _, p := range k.Spec.Paths.SkipIfSet {
		c.settledBy = append(c.settledBy, newPath(p))
	}
	c.plan = c.newReadPlan()
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

// NewClaim reads a claim of this kind, from an object that any decoder may have
// made. The errors are for the author of the claim. There are MaxErrors at most, and
// each is short, whatever the claim holds.
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

// Seed of the draw for a claim: the claim's identity, or the fresh one where
// it has none yet or the kind asks for it.
func (k *ClaimKind) Seed(c Claim, fresh uint64) uint64 {
	if k.drawsAfresh(c) {
		return fresh
	}
	return hashOf(k.Name, c.Namespace, c.Name)
}

func (k *ClaimKind) drawsAfresh(c Claim) bool { return k.freshSeeds || c.Name == "" }
