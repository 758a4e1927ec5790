package selector

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1alpha1"
)

// ClaimKind is a registered kind of claim, compiled once: how its claims are read, what its
// expressions say, and how one of several classes is chosen.
type ClaimKind struct {
	*Reader
	*rules
	policy
	reach
	reserved

	// Revision of the ClaimKind from which it was compiled.
	Revision Revision
	// Watched says that every replica watches the claims: see WatchesClaims.
	Watched bool
	// Serial is another one once claims may be read or bound in another way: the ClaimKind changed,
	// or the fits of a ClassKind that names it, and not only the status.
	Serial uint64
	// Tally counts the claims by class, where they are watched. Nil counts none.
	Tally *Tally
	// selectorAbsent says that the schema of the claims has no field for the selector.
	selectorAbsent bool
	// fault of the registration, whatever its classes; nil if there is none.
	fault *Fault
}

// NewClaimKind compiles a ClaimKind. The ClassKinds are those that name it.
func NewClaimKind(k *v1alpha1.ClaimKind, classKinds ...*v1alpha1.ClassKind) *ClaimKind {
	c := &ClaimKind{
		rules:          newRules(k, classKinds),
		policy:         newPolicy(k),
		reach:          newReach(k.Spec.ClassNamespaces),
		reserved:       reservedBy(k),
		Revision:       RevisionOf(k),
		Watched:        WatchesClaims(k),
		selectorAbsent: k.Status.SelectorAbsent,
	}
	c.Reader = newReader(k, c.rules)
	c.fault = cmp.Or(unknownValue(k), PathsFault(k), c.faultOf("claim kind", k.Name))
	if c.Strategy.newMemory != nil {
		c.memory = c.Strategy.newMemory(c)
	}
	c.compileFilters()
	return c
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

// Seed of the draw for a claim: a hash of its identity, or fresh if it has no name yet or
// the kind asks for that.
func (k *ClaimKind) Seed(c Claim, fresh uint64) uint64 {
	if k.drawsAfresh(c) {
		return fresh
	}
	return hashOf(k.Name, c.Namespace, c.Name)
}
