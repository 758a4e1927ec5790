package selector

import (
	"slices"

	"github.com/classbind/classbind/api/v1alpha1"
)

// reach says from which namespaces claims of a kind are offered classes. All claims
// are offered the classes without a namespace.
type reach struct {
	from v1alpha1.ClassNamespacesFrom
	// names of the namespaces, with FromNames.
	names []string
}

func newReach(n v1alpha1.ClassNamespaces) reach {
	return reach{from: n.From, names: toStrings(n.Names...)}
}

// own says that claims are offered only the classes of their own namespace.
func (r *reach) own() bool {
	return r.from != v1alpha1.FromAll && r.from != v1alpha1.FromNames
}

// offers reports whether the claims of a namespace are offered a class. Claims without a
// namespace are offered no class with one, unless the registration says so.
func (r *reach) offers(namespace, classNamespace string) bool {
	switch {
	case classNamespace == "" || r.from == v1alpha1.FromAll:
		return true
	case r.from == v1alpha1.FromNames:
		return slices.Contains(r.names, classNamespace)
	}
	return classNamespace == namespace
}

// ClassNamespaces are the namespaces whose classes the claims of a namespace are
// offered, if the class kind is namespaced. If all is true, they are all namespaces.
func (r *reach) ClassNamespaces(claimNamespace string) (names []string, all bool) {
	switch {
	case r.from == v1alpha1.FromAll:
		return nil, true
	case r.from == v1alpha1.FromNames:
		return r.names, false
	case claimNamespace == "": // Every class is in a namespace, and the claim in none.
		return nil, false
	}
	return []string{claimNamespace}, false
}

// toStrings are the same values.
func toStrings[T ~string](values ...T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return texts
}
