package claim

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

// has reports whether a field of the reference is given.
func (g *Given) has(name string) bool {
	switch {
	case g == nil, name == "name":
		return false
	case name == "kind":
		return g.Kind != ""
	case name == "namespace":
		return g.Namespace != ""
	}
	return g.HasGroup // apiVersion, apiGroup or group
}
