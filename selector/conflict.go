package selector

import (
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
)

// reserved is what no two ClaimKinds may have: one reference of one kind of claim. Of
// those that do, the first by name is served: a restore from a backup keeps no other order.
type reserved struct {
	resource string
	place    v1beta1.Place

	by string // the ClaimKind
}

func reservedBy(k *v1beta1.ClaimKind) reserved {
	return reserved{k.Resource(), k.Spec.Reference.Place, k.Name}
}

// sameAs reports whether both are the same reference of the same claims.
func (r *reserved) sameAs(o *reserved) bool { return r.resource == o.resource && r.place == o.place }

// conflict is the fault of a ClaimKind for which another one is served.
func (r *reserved) conflict(first *reserved) *inventory.Fault {
	return inventory.Faultf(v1beta1.ReasonConflict,
		"claim kind %q binds no claim: %q, whose name comes first, binds claims of %q by the same reference, %s: "+
			"set another spec.reference, or delete one of the two",
		r.by, first.by, r.resource, fields.Path(r.place.Names()))
}

// ConflictOf a ClaimKind is its fault if one of these comes first by name and has the same
// resource and reference, nil if none does.
func ConflictOf(k *v1beta1.ClaimKind, all []v1beta1.ClaimKind) *inventory.Fault {
	own := reservedBy(k)
	first := own
	for i := range all {
		if other := reservedBy(&all[i]); other.sameAs(&own) && other.by < first.by {
			first = other
		}
	}
	if first.by == own.by {
		return nil
	}
	return own.conflict(&first)
}

// claimKinds of an Inventory, by name.
type claimKinds map[string]*ClaimKind

// resolve does the same for the view of one of them.
func (all claimKinds) resolve(v *View) {
	k := v.Kind
	first := k
	for _, other := range all {
		if other.sameAs(&k.reserved) && other.by < first.by {
			first = other
		}
	}
	if first != k {
		v.Conflict = k.conflict(&first.reserved)
	}
}

// rivals are the names of the claim kinds with the same resource and reference as this one,
// nil for nil.
func (all claimKinds) rivals(k *ClaimKind) (names []string) {
	if k == nil {
		return nil
	}
	for name, other := range all {
		if other.sameAs(&k.reserved) {
			names = append(names, name)
		}
	}
	return names
}
