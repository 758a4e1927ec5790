package selector

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// ClaimKind is a registered kind of claim, compiled once: how its claims are read, what its
// expressions say, and how one of several classes is chosen.
type ClaimKind struct {
	inventory.Demand
	policy
	reserved

	// Revision of the ClaimKind from which it was compiled.
	Revision inventory.Revision
	// Watched says that every replica watches the claims: see WatchesClaims.
	Watched bool
	// Serial is another one once claims may be read or bound in another way: the ClaimKind changed,
	// or the fits of a ClassKind that serves it, and not only the status.
	Serial uint64
	// Tally counts the claims by class, where they are watched. Nil counts none.
	Tally *Tally
	// CannotBindLater is whether the leader could not bind claims later when it last tried, by the
	// status. It is for texts alone.
	CannotBindLater atomic.Bool
	// selectorAbsent says that the schema of the claims has no field for the selector.
	selectorAbsent bool
	// fault of the registration, whatever its classes; nil if there is none.
	fault *inventory.Fault
}

// NewClaimKind compiles a ClaimKind. The ClassKinds are those that serve it.
func NewClaimKind(k *v1beta1.ClaimKind, classKinds ...*v1beta1.ClassKind) *ClaimKind {
	c := &ClaimKind{
		Demand:   inventory.NewDemand(k, classKinds...),
		policy:   newPolicy(k),
		reserved: reservedBy(k),
		Revision: inventory.RevisionOf(k),
		Watched:  WatchesClaims(k),
	}
	c.fault = cmp.Or(unknownValue(k), inventory.FaultOf("claim kind", k.Name, c.Invalid))
	c.CannotBindLater.Store(CannotBindLater(k))
	if c.Strategy.newMemory != nil {
		c.memory = c.Strategy.newMemory(c)
	}
	c.compileFilters()
	return c
}

// WatchesClaims reports whether the claims of a kind are watched: because they are bound
// later, or because the strategy counts them.
func WatchesClaims(k *v1beta1.ClaimKind) bool {
	return k.Spec.WhenUnmatched == v1beta1.BindLater || CountsClaims(k.Spec.Choice.Strategy)
}

// CannotBindLater reports whether LateBinding is False on a ClaimKind.
func CannotBindLater(k *v1beta1.ClaimKind) bool {
	return meta.IsStatusConditionFalse(k.Status.Conditions, v1beta1.ConditionLateBinding)
}

// RelatedKinds are those whose objects the expressions of a claim kind look at, sorted.
func (k *ClaimKind) RelatedKinds() []*rules.Kind { return UnionRelated(k) }

// UnionRelated returns the RelatedKinds of several claim kinds, each once, sorted.
func UnionRelated(kinds ...*ClaimKind) []*rules.Kind {
	looks := map[rules.Key][]fields.Path{}
	for _, k := range kinds {
		if k.Namespaces != nil {
			looks[k.Namespaces.Key()] = append(looks[k.Namespaces.Key()], k.Namespaces.Fields.Paths()...)
		}
		for _, r := range k.Related {
			looks[r.Kind.Key()] = append(looks[r.Kind.Key()], r.Kind.Fields.Paths()...)
		}
	}
	union := make([]*rules.Kind, 0, len(looks))
	for key, paths := range looks {
		union = append(union, &rules.Kind{Resource: key.Resource, Version: key.Version, Fields: expression.NewFields(paths...)})
	}
	slices.SortFunc(union, func(a, b *rules.Kind) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Version, b.Version))
	})
	return union
}
