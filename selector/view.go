package selector

import (
	"cmp"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1alpha1"
)

// View is all that claims of one kind can be bound to, at one moment. It does not change,
// but the memory of its kind's strategy does.
type View struct {
	Kind *ClaimKind
	// Classes of the class kinds that serve the claim kind, sorted by the kind's name.
	// Kinds whose classes are not known are left out.
	Classes []*Classes
	// LeftOut are the class kinds whose classes no reference can tell from those of Classes.
	LeftOut []*ClassKind
	// Fault is why no claim of this kind can be bound, nil if one can.
	Fault *Fault
	// Missing is the fault that some classes are not known, nil if all are. Fault is
	// the same, unless the registration has a fault of its own, or an older one.
	Missing *Fault
	// RelatedMissing is the fault that related objects are not known, in the same way.
	RelatedMissing *Fault
	// Older is, in a view of an Inventory, the name of the ClaimKind that binds the claims of
	// this one, because it has the same reference and was registered before; empty, there is none.
	Older string

	// index of all classes, nil if it is not worth making one.
	index *index

	// needs are the related kinds of the claim kind, and related the objects of each.
	needs   []*RelatedKind
	related []*Objects
}

// NewView puts the classes of several kinds together. It has no index, so the time to
// choose grows with the number of classes.
func NewView(kind *ClaimKind, classes []*Classes) *View {
	slices.SortFunc(classes, byKind)
	v := &View{Kind: kind, Classes: classes, Fault: kind.fault}
	if kind.ConfusesKinds() && len(classes) > 1 {
		v.leaveOut()
	}
	return v
}

func byKind(a, b *Classes) int { return strings.Compare(a.Kind.Name, b.Kind.Name) }

// ConfusesKinds says that the references of claims cannot tell all class kinds apart.
func (k *ClaimKind) ConfusesKinds() bool { return k.form.namesKind != groupAndKind }

// confuses says that no reference can tell the classes of two kinds apart.
func (f *referenceForm) confuses(a, b *ClassKind) bool {
	return f.namesKind == noKind || f.namesKind == kindAlone && a.GroupVersionKind.Kind == b.GroupVersionKind.Kind
}

// leaveOut those of the class kinds that no reference can tell from one that was created
// before, so that one that is created later changes nothing for the claims of others.
func (v *View) leaveOut() {
	oldestFirst := slices.SortedFunc(slices.Values(v.Classes), func(a, b *Classes) int {
		return cmp.Or(a.Kind.Created.Compare(b.Kind.Created), strings.Compare(a.Kind.Name, b.Kind.Name))
	})
	v.Classes = nil
	for _, s := range oldestFirst {
		if v.insteadOf(s.Kind) == nil {
			v.Classes = append(v.Classes, s)
		} else {
			v.LeftOut = append(v.LeftOut, s.Kind)
		}
	}
	slices.SortFunc(v.Classes, byKind)
}

// insteadOf a class kind, claims are offered the classes of the one that it returns, nil
// if no reference confuses it with another.
func (v *View) insteadOf(kind *ClassKind) *ClassKind {
	for _, s := range v.Classes {
		if v.Kind.form.confuses(s.Kind, kind) {
			return s.Kind
		}
	}
	return nil
}

// Len is the number of classes that claims of the kind are offered, in all namespaces.
func (v *View) Len() int {
	n := 0
	for _, s := range v.Classes {
		if v.Kind.own() {
			n += s.Len()
		} else {
			n += s.lenOffered(&v.Kind.reach, "")
		}
	}
	return n
}

// lenOffered is how many classes the claims of a namespace are offered.
func (v *View) lenOffered(namespace string) int {
	n := 0
	for _, s := range v.Classes {
		n += s.lenOffered(&v.Kind.reach, namespace)
	}
	return n
}

// partly says that some claims may not be offered all classes.
func (v *View) partly() bool {
	return v.Kind.from != v1alpha1.FromAll && slices.ContainsFunc(v.Classes, func(s *Classes) bool { return s.Kind.Namespaced })
}
