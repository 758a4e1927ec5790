package selector

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/fields"
)

// reserved is what no two ClaimKinds may have: one reference of one kind of claim. Of
// those that do, the oldest is served.
type reserved struct {
	resource string
	place    v1alpha1.Place

	by      string // the ClaimKind
	created time.Time
}

func reservedBy(k *v1alpha1.ClaimKind) reserved {
	return reserved{k.Resource(), k.Spec.Reference.Place(), k.Name, k.CreationTimestamp.Time}
}

// sameAs reports whether both are the same reference of the same claims.
func (r *reserved) sameAs(o *reserved) bool { return r.resource == o.resource && r.place == o.place }

// after reports whether the other was registered first. The API server knows the second.
func (r *reserved) after(o *reserved) bool {
	return cmp.Or(r.created.Compare(o.created), strings.Compare(r.by, o.by)) > 0
}

// conflict is the fault of a ClaimKind for which another one is served.
func (r *reserved) conflict(oldest *reserved) *Fault {
	return &Fault{v1alpha1.ReasonConflict, fmt.Sprintf(
		"claim kind %q binds no claim: %q, which was registered before it, binds claims of %q by the same reference, %s: "+
			"set another spec.reference, or delete one of the two",
		r.by, oldest.by, r.resource, fields.Path(r.place.Names()))}
}

// ConflictOf a ClaimKind is its fault if one of these is older and has the same resource
// and reference, nil if none is.
func ConflictOf(k *v1alpha1.ClaimKind, all []v1alpha1.ClaimKind) *Fault {
	own := reservedBy(k)
	oldest := own
	for i := range all {
		if other := reservedBy(&all[i]); other.sameAs(&own) && oldest.after(&other) {
			oldest = other
		}
	}
	if oldest.by == own.by {
		return nil
	}
	return own.conflict(&oldest)
}

// claimKinds of an Inventory, by name.
type claimKinds map[string]*ClaimKind

// resolve does the same for the view of one of them.
func (all claimKinds) resolve(v *View) {
	k := v.Kind
	oldest := k
	for _, other := range all {
		if other.sameAs(&k.reserved) && oldest.after(&other.reserved) {
			oldest = other
		}
	}
	if oldest != k {
		v.Fault, v.Older = k.conflict(&oldest.reserved), oldest.Name
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
