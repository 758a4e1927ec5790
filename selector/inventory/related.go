package inventory

import (
	"cmp"
	"errors"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
)

// naming is what a class names.
type naming struct {
	// objects by the relations of the kind.
	objects []className
	// raw is the class as it was read, nil if this is it: see Derived.
	raw *Class
}

func (c *Class) named() []className {
	if c.naming == nil {
		return nil
	}
	return c.naming.objects
}

// nameObjects evaluates which objects a class names. Those whose names depend on other objects come when these are known.
func (c *Class) nameObjects(in *expression.Input, budget *expression.Budget) {
	if len(c.Kind.Related) == 0 {
		return
	}
	c.naming = &naming{}
	for i := range c.Kind.Related {
		n := className{} // Without a name, there is no object. The namespace is that of an expression.
		if r := &c.Kind.Related[i]; !r.IsLate() {
			n, _ = nameOfObject(r, in, budget) // If it costs too much, there is no object.
		}
		c.naming.objects = append(c.naming.objects, n)
	}
}

// nameOfObject evaluates the name of an object. The error is that the evaluations cost too much.
func nameOfObject(r *rules.Relation, in *expression.Input, budget *expression.Budget) (n className, err error) {
	if r.ObjectName == nil { // It does not compile.
		return n, nil
	}
	n.name, err = r.ObjectName.Text(in, budget)
	if err == nil && n.name != "" && r.ObjectNamespace != nil {
		n.namespace, err = r.ObjectNamespace.Text(in, budget)
	}
	if errors.Is(err, expression.ErrBudget) {
		return className{}, err
	}
	if err != nil || max(len(n.name), len(n.namespace)) > v1beta1.MaxNameBytes { // No object has such a name.
		n = className{}
	}
	return n, nil
}

// looksLater are the fields of a class at which expressions look once the objects are known that it names.
func (k *ClassKind) looksLater() (paths []fields.Path) {
	all := k.ForClaims.Values()
	for i := range k.Related {
		all = append(all, k.Related[i].ObjectName, k.Related[i].ObjectNamespace)
	}
	for _, e := range all {
		if e != nil && e.Uses(expression.ClassRelated) {
			paths = append(paths, e.Looks(expression.Class)...)
		}
	}
	return paths
}

// RelatedKinds are those of the objects that classes name, sorted.
func (k *ClassKind) RelatedKinds() []*rules.Kind { return rules.Union(rules.Kinds(k.Related)...) }

// Finder returns the objects of a kind, nil if they are not known.
type Finder func(rules.Key) *Objects

// Related are the objects that a class names, by their names in expressions, without those that are absent. Nil is that of a kind whose
// classes name none. note, unless it is nil, is called with each that has a name. The error is that it costs too much.
func (c *Class) Related(
	of Finder, budget *expression.Budget, note func(r *rules.Relation, namespace, name string),
) (map[string]any, error) {
	named := c.named()
	if len(named) == 0 {
		return nil, nil
	}
	found := make(map[string]any, len(named))
	in := expression.Input{Class: c.Fields, ClassRelated: found}
	for i, n := range named {
		r := &c.Kind.Related[i]
		err := budget.LookUp()
		if err == nil && r.IsLate() {
			n, err = nameOfObject(r, &in, budget)
		}
		if err != nil {
			return nil, err
		}
		objects := of(r.Kind.Key())
		if n = c.objectName(r, n, objects); n.name == "" {
			continue
		}
		if o, _ := objects.Valid(r.Kind, n.namespace, n.name); o != nil {
			found[r.Kind.Name] = o
		}
		if note != nil {
			note(r, n.namespace, n.name)
		}
	}
	return found, nil
}

// objectName is the whole name of an object of a relation. It is empty if there is no such object.
func (c *Class) objectName(r *rules.Relation, n className, objects *Objects) className {
	switch {
	case objects != nil && !objects.Namespaced:
		n.namespace = ""
	case r.ObjectNamespace == nil:
		n.namespace = c.Namespace
	}
	if objects != nil && objects.Namespaced && n.namespace == "" {
		return className{}
	}
	return n
}

// RelatedLength is what it costs to go through the objects that the class names, but for those whose names depend on other objects.
func (c *Class) RelatedLength(of Finder) (length uint64) {
	for i, n := range c.named() {
		r := &c.Kind.Related[i]
		objects := of(r.Kind.Key())
		if n = c.objectName(r, n, objects); n.name != "" { // A late one is not known before it is evaluated.
			o, _ := objects.Valid(r.Kind, n.namespace, n.name)
			length += o.Length()
		}
	}
	return length
}

// Derives reports whether the weight or the capacity of a class depends on the objects that it names.
func (k *ClassKind) Derives() bool {
	return slices.ContainsFunc(k.ForClaims.Values(), func(e *expression.Expression) bool { return e.Uses(expression.ClassRelated) })
}

// Derived is the class with the weight and the capacity that follow from the objects that it names, and what they cost. See Related.
func (c *Class) Derived(of Finder, note func(r *rules.Relation, namespace, name string)) (_ *Class, cost uint64) {
	if !c.Kind.Derives() {
		return c, 0
	}
	raw := cmp.Or(c.naming.raw, c)
	d, budget := *raw, expression.Budget{Left: v1beta1.MaxClassExpressionCost}
	d.naming, d.Capacity = &naming{raw.named(), raw}, slices.Clone(raw.Capacity)
	related, _ := raw.Related(of, &budget, note) // What costs too much fails below, too.
	d.evaluateValues(true, &expression.Input{Class: raw.Fields, ClassRelated: related}, &budget)
	return &d, v1beta1.MaxClassExpressionCost - budget.Left
}
