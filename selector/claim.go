package selector

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
)

// ClaimKind is a registered kind of claim, compiled once.
type ClaimKind struct {
	// Name of the ClaimKind.
	Name string
	// Resource of the claims, and the version for which the paths are written, empty
	// while that is the one that the API server prefers.
	Resource schema.GroupResource
	Version  string
	// Revision of the ClaimKind from which it was compiled.
	Revision Revision
	// Deny refuses a claim if no class matches.
	Deny bool
	// BindLater binds a claim later if no class matches now.
	BindLater bool
	// cannotBindLater reports whether the leader could not bind claims later when it last tried.
	cannotBindLater bool
	// Watched says that every replica watches the claims: see WatchesClaims.
	Watched bool
	// Strategy chooses among several candidates.
	Strategy Strategy
	// Serial is another one once claims are read or bound in another way: the ClaimKind changed,
	// or the fits of a ClassKind that names it, and not only the status.
	Serial uint64
	// Tally counts the claims by class, where they are watched. Nil counts none.
	Tally *Tally

	reach
	reserved
	// fault of the registration, whatever its classes; nil if there is none.
	fault         *Fault
	form          *referenceForm
	classRef      path
	selector      path
	selectorField *field.Path
	// selectorAbsent says that the schema of the claims has no such field.
	selectorAbsent bool
	required       []bool   // by the schema of the claims, of the fields that lead to classRef and the name in it
	pointers       []string // to the same fields, in RFC 6901 form
	settledBy      []path
	plan           *readPlan // of the fields that lead to any of these
	freshSeeds     bool
	memory         memory // nil if the strategy has none
	// filters, of which so many are free: they evaluate no expression.
	filters []compiledFilter
	free    int

	// annotation has a selector as text.
	annotation      path
	annotationField *field.Path
	whenNoSelector  v1alpha1.WhenNoSelector
	// emptyIsUnset reports whether every reference without a name is none: see ClaimKind.reference.
	emptyIsUnset bool
	// needsParent says that a claim without the parent of the reference is left alone.
	needsParent bool
	// allowsUnbind says that an update may remove the reference.
	allowsUnbind bool
	// referencePlan reads the whole reference.
	referencePlan *readPlan

	rules *claimRules
	// linked is what the fits of its class kinds look at in a claim, and linkedFits what their filters say.
	linked     []expression.Path
	linkedFits []linkedFit
	// looksAt is all that expressions look at in a claim.
	looksAt *expression.Fields
	// hasFacts says that there are expressions that need more than a class.
	hasFacts bool
	// decides says that bindWhen decides on claims that have a reference.
	decides bool
	// unsettling are the terms of it that need nothing but the claim.
	unsettling []*expression.Expression
}

// NewClaimKind compiles a ClaimKind. The ClassKinds are those that name it.
func NewClaimKind(k *v1alpha1.ClaimKind, classKinds ...*v1alpha1.ClassKind) *ClaimKind {
	strategy := cmp.Or(k.Spec.Strategy, v1alpha1.WeightedRandom)
	c := &ClaimKind{
		Name:       k.Name,
		Resource:   schema.ParseGroupResource(k.Resource()),
		Version:    k.ReadVersion(),
		Revision:   RevisionOf(k),
		Deny:       k.Spec.WhenUnmatched == v1alpha1.Deny,
		BindLater:  k.Spec.WhenUnmatched == v1alpha1.BindLater,
		Watched:    WatchesClaims(k),
		Strategy:   strategies[strategy],
		reach:      newReach(k.Spec.ClassNamespaces),
		reserved:   reservedBy(k),
		fault:      cmp.Or(unknownValue(k), PathsFault(k)),
		form:       formOf(k.Spec.Reference.Form),
		classRef:   k.Spec.Reference.Place().Names(),
		selector:   newPath(k.Spec.ClassSelector.Path),
		freshSeeds: k.Spec.Seed == v1alpha1.SeedRequest,
	}
	c.cannotBindLater = CannotBindLater(k)
	c.Strategy.Name = strategy
	if c.Strategy.remember != nil {
		c.memory = c.Strategy.remember(c)
	}
	c.selectorField, c.selectorAbsent = c.selector.field(), k.Status.SelectorAbsent
	c.annotation = k.Spec.ClassSelector.AnnotationPlace().Names()
	c.annotationField = c.annotation.field()
	c.whenNoSelector = k.Spec.WhenNoSelector
	c.emptyIsUnset = k.Spec.Reference.EmptyIsUnset
	c.needsParent = k.Spec.Reference.WhenParentAbsent == v1alpha1.LeaveClaimAlone && len(c.classRef) > 1
	for _, p := range k.Spec.SettledBy() {
		c.settledBy = append(c.settledBy, p.Names())
	}
	for last := c.classRef.below("name"); len(c.required) < len(last); {
		at := v1alpha1.FieldPath("." + last[:len(c.required)+1].String())
		c.required = append(c.required, slices.Contains(k.Status.Required, at))
		c.pointers = append(c.pointers, last[:len(c.required)].pointer())
	}
	c.compileFilters()
	c.compileRules(k, classKinds)
	c.plan = c.newReadPlan()
	c.allowsUnbind = k.Spec.OnUnbind == v1alpha1.AllowUnbind
	whole := &readPlan{}
	whole.add(c.classRef, asWhole, v1alpha1.MaxReviewBytes)
	c.referencePlan = whole.compiled(0)
	return c
}

// compileRules compiles the expressions, and what those of class kinds need of claims.
func (k *ClaimKind) compileRules(of *v1alpha1.ClaimKind, classKinds []*v1alpha1.ClassKind) {
	k.rules = newClaimRules(of)
	k.fault = cmp.Or(k.fault, k.rules.faultOf("claim kind", k.Name))
	k.hasFacts = !k.rules.isEmpty()
	k.compileFits(classKinds)
	paths := append(slices.Clone(k.rules.claim), k.linked...)
	if k.decides = k.rules.decidesOnReference(k.classRef); k.decides { // See Decision.Given.
		paths = append(paths, expression.Path(k.classRef))
	}
	k.looksAt = expression.NewFields(paths...)
	k.compileUnsettling()
}

// UsesRequest says that expressions see who asks.
func (k *ClaimKind) UsesRequest() bool { return k.rules.usesRequest }

// Reads reports whether these are the claims that the kind reads.
func (k *ClaimKind) Reads(claims metav1.GroupVersionResource) bool {
	return claims.Resource == k.Resource.Resource && claims.Group == k.Resource.Group && (k.Version == "" || claims.Version == k.Version)
}

// WatchesClaims reports whether the claims of a kind are watched: because they are bound
// later, or because the strategy counts them.
func WatchesClaims(k *v1alpha1.ClaimKind) bool {
	return k.Spec.WhenUnmatched == v1alpha1.BindLater || CountsClaims(k.Spec.Strategy)
}

// CannotBindLater reports whether LateBinding is False on a ClaimKind.
func CannotBindLater(k *v1alpha1.ClaimKind) bool {
	return meta.IsStatusConditionFalse(k.Status.Conditions, v1alpha1.ConditionLateBinding)
}

// Revision of a registration. A registration that is created again has another uid.
type Revision struct {
	UID        types.UID
	Generation int64
}

// RevisionOf a ClaimKind or ClassKind.
func RevisionOf(registration metav1.Object) Revision {
	return Revision{UID: registration.GetUID(), Generation: registration.GetGeneration()}
}

// Claim is the identity of a claim, and what it asks for.
type Claim struct {
	// Name is empty until the API server generates it from GenerateName.
	Namespace, Name, GenerateName string
	// Selector is nil for a claim without one: see ClaimKind.Asks.
	Selector labels.Selector
	// Given is what its author has set of the class reference, nil if that is nothing.
	Given *Given
	// Facts for the expressions of its kind, nil for a kind without.
	Facts *Facts
}

// Asks returns the selector of a claim. Of a claim without one, it is that of everything
// where such claims get any class, and nil where they get the default class.
func (k *ClaimKind) Asks(c Claim) labels.Selector {
	if c.Selector == nil && k.whenNoSelector == v1alpha1.NoSelectorAny {
		return labels.Everything()
	}
	return c.Selector
}

// Seed of the draw for a claim: a hash of its identity, or fresh if it has no name yet or
// the kind asks for that.
func (k *ClaimKind) Seed(c Claim, fresh uint64) uint64 {
	if k.drawsAfresh(c) {
		return fresh
	}
	return hashOf(k.Name, c.Namespace, c.Name)
}

func (k *ClaimKind) drawsAfresh(c Claim) bool { return k.freshSeeds || c.Name == "" }
