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
	// LeftOut are the class kinds whose classes no reference can tell from Classes.
	LeftOut []*ClassKind
	// Fault is why no claim of this kind can be bound, nil if one can.
	Fault *Fault
	// Missing is the fault that some classes are not known, nil if all are. Fault is
	// the same, unless the registration has a fault of its own, or an older one.
	Missing *Fault

	// index of all classes, nil if it is not worth making one.
	index *index
}

// NewView puts the classes of several kinds together. It has no index, so the time to
// choose grows with the number of classes.
func NewView(kind *ClaimKind, classes []*Classes) *View {
	slices.SortFunc(classes, func(a, b *Classes) int { return strings.Compare(a.Kind.Name, b.Kind.Name) })
	v := &View{Kind: kind, Classes: classes, Fault: kind.fault}
	if kind.Exclusive() && len(classes) > 1 {
		v.keepOldest()
	}
	return v
}

// keepOldest leaves out all class kinds but the one that was created first, so that one
// that is created later changes nothing for the claims of others.
func (v *View) keepOldest() {
	oldest := slices.MinFunc(v.Classes, func(a, b *Classes) int {
		return cmp.Or(a.Kind.Created.Compare(b.Kind.Created), strings.Compare(a.Kind.Name, b.Kind.Name))
	})
	for _, s := range v.Classes {
		if s != oldest {
			v.LeftOut = append(v.LeftOut, s.Kind)
		}
	}
	v.Classes = []*Classes{oldest}
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
