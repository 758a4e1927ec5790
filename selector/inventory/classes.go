package inventory

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/classbind/classbind/selector/claim"
)

// Classes are all classes of one kind. They are immutable; a copy with one class changed shares the rest.
type Classes struct {
	Kind *ClassKind

	members list[member]
	index   *index // of the base of the members
	derived *derivation
	// marked is a new pointer after each change of a class that is default or faulty, nil if there never was one.
	marked *int
}

// member is a class with all labels by which it is found.
type member struct {
	*Class
	labels Labels
}

// What may be wrong with a class.
var (
	MalformedWeight   = func(c *Class) bool { return c.WeightErr != nil }
	MalformedMark     = func(c *Class) bool { return c.MarkErr != nil }
	MalformedCapacity = func(c *Class) bool { return c.CapacityErr() != nil }
	OfferFailed       = func(c *Class) bool { return c.OfferErr != nil }
	TooManyLabels     = func(c *Class) bool { return c.TooManyLabels }
)

func isFaulty(c *Class) bool {
	return MalformedWeight(c) || MalformedMark(c) || MalformedCapacity(c) || OfferFailed(c) || TooManyLabels(c)
}

func isMarked(c *Class) bool { return c != nil && (c.Default || isFaulty(c)) }

// NewClasses of a kind. No two may have the same name.
func NewClasses(kind *ClassKind, classes []*Class) *Classes { return newClasses(kind, classes, nil) }

func newClasses(kind *ClassKind, classes []*Class, derived *derivation) *Classes {
	s := &Classes{Kind: kind, derived: derived}
	members := make([]member, len(classes))
	for i, c := range classes {
		members[i] = member{c, derived.labels(c)}
	}
	if slices.ContainsFunc(classes, isMarked) {
		s.marked = new(int)
	}
	s.members = newList(members)
	s.index = newIndex(s.members.base)
	return s
}

// With returns the classes with c, which replaces the class of its name, if there is one. It returns s itself if nothing has changed.
func (s *Classes) With(c *Class) *Classes {
	old := s.find(c.name())
	if old != nil && old.equal(c) {
		old.stored.Store(c.stored.Load())
		return s
	}
	return s.changed(old, c)
}

// WithAll returns the classes with these, which replace those of their names. It returns s itself if nothing has changed.
func (s *Classes) WithAll(classes []*Class) *Classes {
	if len(classes) <= minChanged {
		for _, c := range classes {
			s = s.With(c)
		}
		return s
	}
	all := make(map[className]*Class, s.Len())
	s.Each(func(c *Class) { all[c.name()] = c })
	changed := false
	for _, c := range classes {
		if old := all[c.name()]; old == nil || !old.equal(c) {
			all[c.name()], changed = c, true
		}
	}
	if !changed {
		return s
	}
	return newClasses(s.Kind, slices.Collect(maps.Values(all)), s.derived)
}

// Without returns the classes without the one of this name.
func (s *Classes) Without(namespace, name string) *Classes {
	return s.changed(s.Find(namespace, name), nil)
}

// changed returns the classes with another version of a class, even if nothing differs. Either may be nil.
func (s *Classes) changed(old, c *Class) *Classes {
	if old == nil && c == nil {
		return s
	}
	next := *s
	if c == nil {
		next.members = s.members.with(old.name())
	} else {
		next.members = s.members.with(c.name(), member{c, s.derived.labels(c)})
	}
	if len(next.members.added)+len(next.members.gone) == 0 { // The base is new.
		next.index = newIndex(next.members.base)
	}
	if isMarked(old) || isMarked(c) {
		next.marked = new(int)
	}
	return &next
}

// Len returns the number of classes.
func (s *Classes) Len() int { return s.members.len() }

// Find the class of that name, nil if there is none.
func (s *Classes) Find(namespace, name string) *Class { return s.find(className{namespace, name}) }

func (s *Classes) find(n className) *Class {
	found, _ := s.members.find(n)
	return found.Class
}

// All classes, sorted.
func (s *Classes) All() []*Class {
	all := make([]*Class, 0, s.Len())
	s.Each(func(c *Class) { all = append(all, c) })
	return all
}

// Each calls a function with each class, in their order.
func (s *Classes) Each(call func(*Class)) { s.members.each(func(m member) { call(m.Class) }) }

// Faulty are the classes with which this is wrong, sorted.
func (s *Classes) Faulty(isWrong func(*Class) bool) []*Class {
	return slices.DeleteFunc(s.having(faultyKey), func(c *Class) bool { return !isWrong(c) })
}

// defaults are the classes that are marked default, sorted.
func (s *Classes) defaults() []*Class { return s.having(defaultKey) }

// having returns the classes that have a key, sorted.
func (s *Classes) having(key string) (all []*Class) {
	s.each([]term{newTerm(key, selection.Exists)}, nil, "", func(c *Class) { all = append(all, c) })
	slices.SortFunc(all, Compare)
	return all
}

// SameSummary reports whether both have the same kind and number of classes, and the same default and faulty ones.
func (s *Classes) SameSummary(o *Classes) bool {
	return s.Kind == o.Kind && s.Len() == o.Len() && s.marked == o.marked
}

func (c *Class) name() className { return className{c.Namespace, c.Name} }

type className struct{ namespace, name string }

func (n className) compare(o className) int {
	if by := strings.Compare(n.namespace, o.namespace); by != 0 {
		return by
	}
	return strings.Compare(n.name, o.name)
}

// lenOffered is how many of the classes the claims of a namespace are offered.
func (s *Classes) lenOffered(r *claim.Reach, namespace string) (n int) {
	if _, all := r.ClassNamespaces(namespace); all || !s.Kind.Namespaced {
		return s.Len()
	}
	s.EachOffered(r, namespace, func(*Class) { n++ })
	return n
}

// EachOffered visits the classes that the claims of a namespace are offered.
func (s *Classes) EachOffered(r *claim.Reach, namespace string, visit func(*Class)) {
	s.each(nil, r, namespace, visit)
}
