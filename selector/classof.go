package selector

// ClassOf returns the class that a claim's reference names, nil if it is not known. If
// it is not there, missing names it as RESOURCE/NAME or RESOURCE/NAMESPACE/NAME. A
// reference to a kind that the view does not have says nothing.
func (v *View) ClassOf(namespace string, object map[string]any) (class *Class, missing string) {
	to, bound := v.Kind.refersTo(object)
	if !bound || to.name == "" {
		return nil, ""
	}
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
		if class := s.find(className{in, to.name}); class != nil {
			return class, ""
		}
		if missing = s.Kind.Name + "/" + to.name; in != "" {
			missing = s.Kind.Name + "/" + in + "/" + to.name
		}
	}
	return nil, missing
}
