package selector

import (
	"hash/maphash"
	"slices"
)

// Classes are all classes of one kind. They are immutable; a copy with one class
// changed shares the rest.
type Classes struct {
	Kind *ClassKind

	byName   dict[className, *Class]
	defaults classSet
	// byNamespace is empty for a cluster-scoped kind.
	byNamespace dict[text, namespaced]
	// malformed are the classes with a malformed weight.
	malformed classSet
	// mismarked are the classes with a malformed mark.
	mismarked classSet
	// overlabelled are the classes with TooManyLabels.
	overlabelled classSet
	// failed are the classes for which offerWhen fails.
	failed classSet
}

type (
	classSet  = dict[*Class, struct{}]
	className struct{ namespace, name string }
)

// namespaced are the classes of one namespace, and those of them that are default.
type namespaced struct{ all, defaults classSet }

func (c *Class) hash() uint64 { return c.place }

func (n className) hash() uint64 { return maphash.Comparable(placeSeed, n) }

// NewClasses of a kind. No two may have the same name.
func NewClasses(kind *ClassKind, classes []*Class) *Classes {
	byName := make([]entry[className, *Class], len(classes))
	byNamespace := map[string][]*Class{}
	var defaults, malformed, mismarked, overlabelled, failed []*Class
	for i, c := range classes {
		byName[i] = entry[className, *Class]{c, c.name()}
		if kind.Namespaced {
			byNamespace[c.Namespace] = append(byNamespace[c.Namespace], c)
		}
		if c.Default {
			defaults = append(defaults, c)
		}
		if c.WeightErr != nil {
			malformed = append(malformed, c)
		}
		if c.MarkErr != nil {
			mismarked = append(mismarked, c)
		}
		if c.TooManyLabels {
			overlabelled = append(overlabelled, c)
		}
		if c.OfferErr != nil {
			failed = append(failed, c)
		}
	}
	s := &Classes{
		Kind: kind, byName: newDict(byName), defaults: newClassSet(defaults),
		malformed: newClassSet(malformed), mismarked: newClassSet(mismarked), overlabelled: newClassSet(overlabelled),
		failed: newClassSet(failed),
	}
	namespaces := make([]entry[text, namespaced], 0, len(byNamespace))
	for namespace, all := range byNamespace {
		of := namespaced{all: newClassSet(all)}
		of.defaults = newClassSet(slices.DeleteFunc(all, func(c *Class) bool { return !c.Default }))
		namespaces = append(namespaces, entry[text, namespaced]{of, text(namespace)})
	}
	s.byNamespace = newDict(namespaces)
	return s
}

// With returns the classes with c, which replaces the class of its name, if there is
// one. It returns s itself if nothing has changed.
func (s *Classes) With(c *Class) *Classes {
	next := *s
	if old := s.find(c.name()); old != nil {
		if old.equal(c) {
			return s
		}
		next.unmark(old)
	}
	next.byName = s.byName.with(c.name(), c)
	next.mark(c)
	return &next
}

// Without returns the classes without the one of this name.
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

// All classes, sorted anew each time.
func (s *Classes) All() []*Class {
	all := make([]*Class, 0, s.Len())
	s.Each(func(c *Class) { all = append(all, c) })
	slices.SortFunc(all, compare)
	return all
}

// Each calls a function with each class, in no order.
func (s *Classes) Each(call func(*Class)) { s.byName.each(func(_ className, c *Class) { call(c) }) }

// Defaults are the classes marked default, sorted.
func (s *Classes) Defaults() []*Class { return sorted(s.defaults) }

// Malformed are the classes with a malformed weight, sorted.
func (s *Classes) Malformed() []*Class { return sorted(s.malformed) }

// Mismarked are the classes with a malformed mark, sorted.
func (s *Classes) Mismarked() []*Class { return sorted(s.mismarked) }

// Overlabelled are the classes with TooManyLabels, sorted.
func (s *Classes) Overlabelled() []*Class { return sorted(s.overlabelled) }

// Failed are the classes with an OfferErr, sorted.
func (s *Classes) Failed() []*Class { return sorted(s.failed) }

// SameSummary says whether both have the same kind and number of classes, and the
// same default, malformed, mismarked, overlabelled and failed ones.
func (s *Classes) SameSummary(o *Classes) bool {
	return s.Kind == o.Kind && s.Len() == o.Len() && s.defaults == o.defaults &&
		s.malformed == o.malformed && s.mismarked == o.mismarked && s.overlabelled == o.overlabelled &&
		s.failed == o.failed
}

func (s *Classes) find(n className) *Class {
	c, _ := s.byName.get(n.hash(), n)
	return c
}

// mark adds a class of byName to the other sets that it belongs to.
func (s *Classes) mark(c *Class) {
	if s.Kind.Namespaced {
		of := s.in(c.Namespace)
		of.all = of.all.with(c, struct{}{})
		if c.Default {
			of.defaults = of.defaults.with(c, struct{}{})
		}
		s.byNamespace = s.byNamespace.with(text(c.Namespace), of)
	}
	if c.Default {
		s.defaults = s.defaults.with(c, struct{}{})
	}
	if c.WeightErr != nil {
		s.malformed = s.malformed.with(c, struct{}{})
	}
	if c.MarkErr != nil {
		s.mismarked = s.mismarked.with(c, struct{}{})
	}
	if c.TooManyLabels {
		s.overlabelled = s.overlabelled.with(c, struct{}{})
	}
	if c.OfferErr != nil {
		s.failed = s.failed.with(c, struct{}{})
	}
}

func (s *Classes) unmark(c *Class) {
	if s.Kind.Namespaced {
		of := s.in(c.Namespace)
		of = namespaced{of.all.without(c), of.defaults.without(c)}
		if of.all.size > 0 {
			s.byNamespace = s.byNamespace.with(text(c.Namespace), of)
		} else {
			s.byNamespace = s.byNamespace.without(text(c.Namespace))
		}
	}
	s.defaults = s.defaults.without(c)
	s.malformed = s.malformed.without(c)
	s.mismarked = s.mismarked.without(c)
	s.overlabelled = s.overlabelled.without(c)
	s.failed = s.failed.without(c)
}

// in returns the classes of a namespace, of a namespaced kind.
func (s *Classes) in(namespace string) namespaced {
	n := text(namespace)
	found, _ := s.byNamespace.get(n.hash(), n)
	return found
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
