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
func (r *reach) offers(namespace string, c *Class) bool {
	switch {
	case c.Namespace == "" || r.from == v1alpha1.FromAll:
		return true
	case r.from == v1alpha1.FromNames:
		return slices.Contains(r.names, c.Namespace)
	}
	return c.Namespace == namespace
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

// lenOffered is how many of the classes the claims of a namespace are offered.
func (s *Classes) lenOffered(r *reach, namespace string) int {
	switch {
	case !s.Kind.Namespaced || r.from == v1alpha1.FromAll:
		return s.Len()
	case r.from == v1alpha1.FromNames:
		n := 0
		for _, name := range r.names {
			n += s.in(name).all.Len()
		}
		return n
	}
	return s.in(namespace).all.Len()
}

// eachOffered visits the classes that the claims of a namespace are offered.
func (s *Classes) eachOffered(r *reach, namespace string, visit func(*Class)) {
	visitKey := func(c *Class, _ struct{}) { visit(c) }
	switch {
	case !s.Kind.Namespaced || r.from == v1alpha1.FromAll:
		s.byName.Each(func(_ className, c *Class) { visit(c) })
	case r.from == v1alpha1.FromNames:
		for _, name := range r.names {
			s.in(name).all.Each(visitKey)
		}
	default:
		s.in(namespace).all.Each(visitKey)
	}
}
