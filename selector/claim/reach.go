package claim

import (
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
)

// Reach says from which namespaces claims of a kind are offered classes. All claims
// are offered the classes without a namespace.
type Reach struct {
	From v1beta1.ClassNamespacesFrom
	// Names of the namespaces, with FromNames.
	Names []string
}

// NewReach returns what a ClaimKind says of the namespaces.
func NewReach(n v1beta1.ClassNamespaces) Reach {
	return Reach{From: n.From, Names: Strings(n.Names...)}
}

// Own says that claims are offered only the classes of their own namespace.
func (r *Reach) Own() bool {
	return r.From != v1beta1.FromAll && r.From != v1beta1.FromNames
}

// Offers reports whether the claims of a namespace are offered a class. Claims without a
// namespace are offered no class with one, unless the registration says so.
func (r *Reach) Offers(namespace, classNamespace string) bool {
	switch {
	case classNamespace == "" || r.From == v1beta1.FromAll:
		return true
	case r.From == v1beta1.FromNames:
		return slices.Contains(r.Names, classNamespace)
	}
	return classNamespace == namespace
}

// ClassNamespaces are the namespaces whose classes the claims of a namespace are
// offered, if the class kind is namespaced. If all is true, they are all namespaces.
func (r *Reach) ClassNamespaces(claimNamespace string) (names []string, all bool) {
	switch {
	case r.From == v1beta1.FromAll:
		return nil, true
	case r.From == v1beta1.FromNames:
		return r.Names, false
	case claimNamespace == "": // Every class is in a namespace, and the claim in none.
		return nil, false
	}
	return []string{claimNamespace}, false
}

// Strings are the same values.
func Strings[T ~string](values ...T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return texts
}
