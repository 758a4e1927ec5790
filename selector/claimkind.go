package selector

import (
	"cmp"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/rules"
)

// ClaimKind is a registered kind of claim, compiled once: how its claims are read, what its
// expressions say, and how one of several classes is chosen.
type ClaimKind struct {
	*claim.Reader
	*rules.ForClaims
	policy
	claim.Reach
	reserved

	// Revision of the ClaimKind from which it was compiled.
	Revision Revision
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
	// precedence are the class kinds in which a name is looked for, in this order, where no reference tells
	// them apart.
	precedence []string
	// selectorAbsent says that the schema of the claims has no field for the selector.
	selectorAbsent bool
	// fault of the registration, whatever its classes; nil if there is none.
	fault *Fault
}

// NewClaimKind compiles a ClaimKind. The ClassKinds are those that serve it.
func NewClaimKind(k *v1beta1.ClaimKind, classKinds ...*v1beta1.ClassKind) *ClaimKind {
	c := &ClaimKind{
		ForClaims: rules.NewForClaims(k, classKinds...),
		policy:    newPolicy(k),
		Reach:     claim.NewReach(k.Spec.Classes.Namespaces),
		reserved:  reservedBy(k),
		Revision:  RevisionOf(k),
		Watched:   WatchesClaims(k),
	}
	c.Reader = claim.NewReader(k, c.ForClaims)
	if k.Spec.Classes.Precedence == v1beta1.PrecedenceListed && c.ConfusesKinds() {
		for _, link := range k.Spec.Classes.Kinds {
			c.precedence = append(c.precedence, link.Name)
		}
	}
	c.fault = cmp.Or(unknownValue(k), faultOf("claim kind", k.Name, c.Invalid))
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
func (k *ClaimKind) Seed(c claim.Claim, fresh uint64) uint64 {
	if k.drawsAfresh(c) {
		return fresh
	}
	return hashOf(k.Name, c.Namespace, c.Name)
}

// ClassOf returns the class that a claim's reference names, nil if it is not known. If
// it is not there, missing names it as RESOURCE/NAME or RESOURCE/NAMESPACE/NAME. A
// reference to a kind that is not among the classes says nothing. They are those of all
// class kinds, also of those that a View leaves out: a claim may have had its class
// before. A claim that is settled by another field than its reference, such as the name
// of a volume that exists, may name a class that never was, so it misses none.
func (k *ClaimKind) ClassOf(classes []*Classes, namespace string, object map[string]any) (class *Class, missing string) {
	to, bound := k.RefersTo(object)
	if !bound || k.MayRebind(object) || to.Name == "" {
		return nil, ""
	}
	for s, in := range k.named(classes, namespace, to) {
		if class := s.find(className{in, to.Name}); class != nil {
			return class, ""
		}
		name := to.Name
		if in != "" {
			name = in + "/" + name
		}
		missing = cmp.Or(missing, s.Kind.Name+"/"+name)
	}
	if value, _ := claim.FirstSet(object, k.SkipIfSet); value != nil {
		return nil, ""
	}
	return nil, missing
}

// countedAs is the value that BoundTo returns for a class.
func (k *ClaimKind) countedAs(c *Class) uint64 {
	switch k.Form.NamesKind {
	case claim.GroupAndKind:
		return c.place
	case claim.KindAlone:
		return c.groupless
	default:
		return c.kindless
	}
}

// Given says that the claim refers to its class already, so there is nothing to write. That
// is so where claims.when is true for such a claim, too.
func (d *Decision) Given() bool {
	k, in := d.View.Kind, &d.Claim
	if d.Class == nil || !k.Decides {
		return false
	}
	to, has := k.RefersTo(in.Object)
	if !has {
		return false
	}
	counts := k.CountsFor(in.Namespace, to)
	return counts[0] == k.countedAs(d.Class) || counts[1] != 0 && counts[1] == k.countedAs(d.Class)
}
