package selector

import "slices"

// Classes are those of one kind. They are immutable; others that differ in one
// class share the rest with them.
type Classes struct {
	Kind *ClassKind

	byName   dict[className, *Class]
	defaults classSet
	// malformed have a weight that cannot be read.
	malformed classSet
}

type (
	classSet  = dict[*Class, struct{}]
	className struct{ namespace, name string }
)

func (c *Class) hash() uint64 { return c.sum }

func (n className) hash() uint64 { return hashOf(n.namespace, n.name) }

// NewClasses of a kind, of which no two have one name.
func NewClasses(kind *ClassKind, classes []*Class) *Classes {
	byName := make([]entry[className, *Class], len(classes))
	var defaults, malformed []*Class
	for i, c := range classes {
		byName[i] = entry[className, *Class]{c, c.name()}
		if c.Default {
			defaults = append(defaults, c)
		}
		if c.WeightErr != nil {
			malformed = append(malformed, c)
		}
	}
	return &Classes{Kind: kind, byName: newDict(byName), defaults: newClassSet(defaults), malformed: newClassSet(malformed)}
}

// With a class, in the place of the one of that name, if there is one. They are
// the same where nothing has changed.
func (s *Classes) With(c *Class) *Classes {
	next := *s
	if old := s.find(c.name()); old != nil {
		if old.equal(c) {
			return s
		}
		next.unmark(old)
	}
	next.byName = s.byName.with(c.name(), c)
	if c.Default {
		next.defaults = next.defaults.with(c, struct{}{})
	}
	if c.WeightErr != nil {
		next.malformed = next.malformed.with(c, struct{}{})
	}
	return &next
}

// Without the class of a name.
func (s *Classes) Without(namespace, name string) *Classes {
	c := s.find(className{namespace, name})
	if c == nil {
		return s
	}
	next := *s
	next.byName = s.byName.without(c.name())
	next.unmark(c)
	return &next
}

// Len is their number.
func (s *Classes) Len() int { return s.byName.size }

// Has says whether there is a class of that name.
func (s *Classes) Has(namespace, name string) bool { return s.find(className{namespace, name}) != nil }

// All in their order, which is made anew each time.
func (s *Classes) All() []*Class {
	all := make([]*Class, 0, s.Len())
	s.byName.each(func(_ className, c *Class) { all = append(all, c) })
	slices.SortFunc(all, compare)
	return all
}

// Defaults are those marked default, in their order.
func (s *Classes) Defaults() []*Class { return sorted(s.defaults) }

// Malformed are those whose weight cannot be read, in their order.
func (s *Classes) Malformed() []*Class { return sorted(s.malformed) }

// Resemble others, of the same kind, that are as many, and of which the same are
// default and malformed.
func (s *Classes) Resemble(o *Classes) bool {
	return s.Kind == o.Kind && s.Len() == o.Len() && s.defaults == o.defaults && s.malformed == o.malformed
}

func (s *Classes) find(n className) *Class {
	c, _ := s.byName.get(n.hash(), n)
	return c
}

func (s *Classes) unmark(c *Class) {
	s.defaults = s.defaults.without(c)
	s.malformed = s.malformed.without(c)
}

func (c *Class) name() className { return className{c.Namespace, c.Name} }

func newClassSet(classes []*Class) classSet {
	entries := make([]entry[*Class, struct{}], len(classes))
	for i, c := range classes {
		entries[i].key = c
	}
	return newDict(entries)
}

func sorted(s classSet) []*Class {
	all := make([]*Class, 0, s.size)
	s.each(func(c *Class, _ struct{}) { all = append(all, c) })
	slices.SortFunc(all, compare)
	return all
}
