package claim

import "github.com/classbind/classbind/api/v1beta1"

// Given is what an author has set of a class reference, without the name: the claim gets a class that agrees with it.
type Given struct {
	// group counts only if hasGroup is set, because that of the core is empty.
	HasGroup               bool
	Group, Kind, Namespace string
}

// AgreesWith reports whether a reference has what is given. The version is the author's.
func (g *Given) AgreesWith(to Target) bool {
	return (!g.HasGroup || g.Group == to.Group) && (g.Kind == "" || g.Kind == to.Kind) && (g.Namespace == "" || g.Namespace == to.Namespace)
}

// has reports whether a part of the reference is given.
func (g *Given) has(p *Part) bool {
	switch {
	case g == nil:
		return false
	case p.Role == v1beta1.KindPart, p.Role == v1beta1.FlagPart:
		return g.Kind != ""
	case p.Role == v1beta1.NamespacePart:
		return g.Namespace != ""
	}
	return p.Role != v1beta1.NamePart && g.HasGroup
}
