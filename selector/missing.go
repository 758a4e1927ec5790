package selector

// MissingClass returns the class, as RESOURCE/NAME or RESOURCE/NAMESPACE/NAME, that a
// claim's reference names and that is not there; empty if it is. A reference to a kind
// that is not among the classes says nothing. They are those of all class kinds, also of
// those that a View leaves out: a claim may have had its class before. A claim that is
// settled by another field than its reference, such as the name of a volume that exists,
// may name a class that never was.
func (k *ClaimKind) MissingClass(classes []*Classes, namespace string, object map[string]any) string {
	to, bound := k.refersTo(object)
	if !bound || to.name == "" {
		return ""
	}
	for _, p := range k.settledBy[1:] { // The first is the reference.
		if value, _ := p.lookup(object); value != nil {
			return ""
		}
	}
	missing := ""
	for _, s := range classes {
		kind := s.Kind.GroupVersionKind
		if k.form.namesKind && (kind.Group != to.group || kind.Kind != to.kind) {
			continue
		}
		in := ""
		switch {
		case s.Kind.Namespaced && k.form.namesNamespace:
			in = to.namespace
		case s.Kind.Namespaced:
			in = k.looksIn(namespace)
		}
		if s.Has(in, to.name) {
			return ""
		}
		if missing = s.Kind.Name + "/" + to.name; in != "" {
			missing = s.Kind.Name + "/" + in + "/" + to.name
		}
	}
	return missing
}
