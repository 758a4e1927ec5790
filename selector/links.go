package selector

import (
	"slices"

	"github.com/classbind/classbind/api/v1alpha1"
)

// Naming are the ClassKinds that name a ClaimKind: what is read of its claims depends on their
// expressions, too.
func Naming(claimKind string, all []v1alpha1.ClassKind) (naming []*v1alpha1.ClassKind) {
	for i := range all {
		if slices.Contains(all[i].Spec.ClaimKinds, claimKind) {
			naming = append(naming, &all[i])
		}
	}
	return naming
}

// NamedBy a ClassKind are these ClaimKinds: what is held of its classes depends on their
// expressions, too.
func NamedBy(k *v1alpha1.ClassKind, all []v1alpha1.ClaimKind) (named []*v1alpha1.ClaimKind) {
	for i := range all {
		if slices.Contains(k.Spec.ClaimKinds, all[i].Name) {
			named = append(named, &all[i])
		}
	}
	return named
}
