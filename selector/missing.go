package selector

// MissingClass returns the class, as RESOURCE/NAME or RESOURCE/NAMESPACE/NAME, that a
// claim's reference names and that is not there; empty if it is. A reference to a kind
// that the view does not have says nothing.
func (v *View) MissingClass(namespace string, object map[string]any) string {
	to, bound := v.Kind.refersTo(object)
	if !bound || to.name == "" {
		return ""
	}
	missing := ""
	for _, s := range v.Classes {
		kind := s.Kind.GroupVersionKind
		if v.Kind.form.namesKind && (kind.Group != to.group || kind.Kind != to.kind) {
			continue
		}
		in := ""
		switch {
		case s.Kind.Namespaced && v.Kind.form.namesNamespace:
			in = to.namespace
		case s.Kind.Namespaced:
			in = v.Kind.looksIn(namespace)
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
