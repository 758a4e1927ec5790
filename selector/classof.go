package selector

import "cmp"

// ClassOf returns the class that a claim's reference names, nil if it is not known. If
// it is not there, missing names it as RESOURCE/NAME or RESOURCE/NAMESPACE/NAME. A
// reference to a kind that is not among the classes says nothing. They are those of all
// class kinds, also of those that a View leaves out: a claim may have had its class
// before. A claim that is settled by another field than its reference, such as the name
// of a volume that exists, may name a class that never was, so it misses none.
func (k *ClaimKind) ClassOf(classes []*Classes, namespace string, object map[string]any) (class *Class, missing string) {
	to, bound := k.refersTo(object)
	if !bound || k.mayRebind(object) || to.name == "" {
		return nil, ""
	}
	for _, s := range classes {
		kind := s.Kind.GroupVersionKind
		if k.form.namesKind == groupAndKind && kind.Group != to.group || k.form.namesKind != noKind && kind.Kind != to.kind {
			continue
		}
		in := ""
		if s.Kind.Namespaced {
			in = cmp.Or(to.namespace, k.classNamespace, namespace)
		}
		if class := s.find(className{in, to.name}); class != nil {
			return class, ""
		}
		name := to.name
		if in != "" {
			name = in + "/" + name
		}
		missing = cmp.Or(missing, s.Kind.Name+"/"+name)
	}
	if value, _ := firstSet(object, k.skipIfSet); value != nil {
		return nil, ""
	}
	return nil, missing
}

// countedAs is the value that BoundTo returns for a class.
func (k *ClaimKind) countedAs(c *Class) uint64 {
	switch k.form.namesKind {
	case groupAndKind:
		return c.place
	case kindAlone:
		return c.groupless
	default:
		return c.kindless
	}
}
