package inventory

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/classbind/classbind/selector/claim"
)

// Classes are all classes of one kind. They are immutable; a copy with one class changed shares the rest.
type Classes struct {
	Kind *ClassKind

	byName table[className, *Class]
	// byNamespace is empty for a cluster-scoped kind.
	byNamespace table[text, namespaced]
	// sets of classes that are shown, one for each of these properties.
	sets [len(properties)]classSet
}

const (
	defaults = iota
	malformed
	invalidMark
	tooManyLabels
	failed
	malformedCapacity
)

// properties say which sets a class belongs to.
var properties = [...]func(*Class) bool{
	defaults:      isDefault,
	malformed:     func(c *Class) bool { return c.WeightErr != nil },
	invalidMark:   func(c *Class) bool { return c.MarkErr != nil },
	tooManyLabels: func(c *Class) bool { return c.TooManyLabels },
	failed:        func(c *Class) bool { return c.OfferErr != nil },

	malformedCapacity: func(c *Class) bool { return c.Capacity != nil && c.Capacity.Err != nil },
}

type (
	classSet  = table[*Class, struct{}]
	className struct{ namespace, name string }
)

// namespaced are the classes of one namespace, and those of them that are default.
type namespaced struct{ all, defaults classSet }

// Hash is for sets of classes.
func (c *Class) Hash() uint64 { return c.Place }

func (n className) Hash() uint64 { return maphash.Comparable(claim.Seed, n) }

func isAny(*Class) bool       { return true }
func isDefault(c *Class) bool { return c.Default }

// NewClasses of a kind. No two may have the same name.
func NewClasses(kind *ClassKind, classes []*Class) *Classes {
	byName := make([]entry[className, *Class], len(classes))
	byNamespace := map[string][]*Class{}
	for i, c := range classes {
		byName[i] = entry[className, *Class]{Key: c.name(), Value: c}
		if kind.Namespaced {
			byNamespace[c.Namespace] = append(byNamespace[c.Namespace], c)
		}
	}
	s := &Classes{Kind: kind, byName: newTable(byName)}
	for i, belongs := range properties {
		s.sets[i] = newClassSet(classes, belongs)
	}
	namespaces := make([]entry[text, namespaced], 0, len(byNamespace))
	for namespace, all := range byNamespace {
		of := namespaced{all: newClassSet(all, isAny), defaults: newClassSet(all, isDefault)}
		namespaces = append(namespaces, entry[text, namespaced]{Key: text(namespace), Value: of})
	}
	s.byNamespace = newTable(namespaces)
	return s
}

// With returns the classes with c, which replaces the class of its name, if there is one. It returns s itself if nothing has changed.
func (s *Classes) With(c *Class) *Classes {
	old := s.find(c.name())
	if old != nil && old.equal(c) {
		old.stored.Store(c.stored.Load())
		return s
	}
	return s.put(old, c)
}

// put exchanges old for c, even if nothing differs; old is nil if there is no class of that name.
func (s *Classes) put(old, c *Class) *Classes {
	next := *s
	next.byName = s.byName.With(c.name(), c)
	next.exchange(old, c)
	return &next
}

// Without returns the classes without the one of this name.
func (s *Classes) Without(namespace, name string) *Classes {
	c := s.find(className{namespace, name})
	if c == nil {
		return s
	}
	next := *s
	next.byName = s.byName.Without(c.name())
	next.exchange(c, nil)
	return &next
}

// Len is their number.
func (s *Classes) Len() int { return s.byName.Len() }

// Find the class of that name, nil if there is none.
func (s *Classes) Find(namespace, name string) *Class { return s.find(className{namespace, name}) }

// All classes, sorted anew each time.
func (s *Classes) All() []*Class {
	all := make([]*Class, 0, s.Len())
	s.Each(func(c *Class) { all = append(all, c) })
	slices.SortFunc(all, Compare)
	return all
}

// Each calls a function with each class, in no order.
func (s *Classes) Each(call func(*Class)) { s.byName.Each(func(_ className, c *Class) { call(c) }) }

// Defaults are the classes marked default, sorted.
func (s *Classes) Defaults() []*Class { return sorted(s.sets[defaults]) }

// Malformed are the classes with a malformed weight, sorted.
func (s *Classes) Malformed() []*Class { return sorted(s.sets[malformed]) }

// WithMalformedCapacity are the classes with one, sorted.
func (s *Classes) WithMalformedCapacity() []*Class { return sorted(s.sets[malformedCapacity]) }

// WithInvalidMark are the classes with a malformed mark, sorted.
func (s *Classes) WithInvalidMark() []*Class { return sorted(s.sets[invalidMark]) }

// WithTooManyLabels are the classes with TooManyLabels, sorted.
func (s *Classes) WithTooManyLabels() []*Class { return sorted(s.sets[tooManyLabels]) }

// Failed are the classes with an OfferErr, sorted.
func (s *Classes) Failed() []*Class { return sorted(s.sets[failed]) }

// SameSummary reports whether both have the same kind and number of classes, and the
// same default, malformed, invalidMark, tooManyLabels, failed and malformedCapacity ones.
func (s *Classes) SameSummary(o *Classes) bool {
	return s.Kind == o.Kind && s.Len() == o.Len() && s.sets == o.sets
}

func (s *Classes) find(n className) *Class {
	c, _ := s.byName.Get(n)
	return c
}

// exchange one version of a class for another in the sets beside byName that they belong to. Either may be nil.
func (s *Classes) exchange(old, c *Class) {
	if s.Kind.Namespaced {
		namespace := cmp.Or(c, old).Namespace
		of := s.in(namespace)
		of = namespaced{exchanged(of.all, old, c, isAny), exchanged(of.defaults, old, c, isDefault)}
		if of.all.Len() > 0 {
			s.byNamespace = s.byNamespace.With(text(namespace), of)
		} else {
			s.byNamespace = s.byNamespace.Without(text(namespace))
		}
	}
	for i, belongs := range properties {
		s.sets[i] = exchanged(s.sets[i], old, c, belongs)
	}
}

// exchanged returns a set with another version of a class, if they belong to it. Either may be nil.
func exchanged(s classSet, old, c *Class, belongs func(*Class) bool) classSet {
	had, has := old != nil && belongs(old), c != nil && belongs(c)
	switch {
	case had && has:
		return s.Swapped(old, c, struct{}{})
	case had:
		return s.Without(old)
	case has:
		return s.With(c, struct{}{})
	}
	return s
}

// in returns the classes of a namespace, of a namespaced kind.
func (s *Classes) in(namespace string) namespaced {
	found, _ := s.byNamespace.Get(text(namespace))
	return found
}

func (c *Class) name() className { return className{c.Namespace, c.Name} }

// newClassSet of those of the classes that belong to it.
func newClassSet(classes []*Class, belongs func(*Class) bool) classSet {
	var entries []entry[*Class, struct{}]
	for _, c := range classes {
		if belongs(c) {
			entries = append(entries, entry[*Class, struct{}]{Key: c})
		}
	}
	return newTable(entries)
}

func sorted(s classSet) []*Class {
	all := make([]*Class, 0, s.Len())
	s.Each(func(c *Class, _ struct{}) { all = append(all, c) })
	slices.SortFunc(all, Compare)
	return all
}

// lenOffered is how many of the classes the claims of a namespace are offered.
func (s *Classes) lenOffered(r *claim.Reach, namespace string) (n int) {
	names, all := r.ClassNamespaces(namespace)
	if all || !s.Kind.Namespaced {
		return s.Len()
	}
	for _, name := range names {
		n += s.in(name).all.Len()
	}
	return n
}

// EachOffered visits the classes that the claims of a namespace are offered.
func (s *Classes) EachOffered(r *claim.Reach, namespace string, visit func(*Class)) {
	names, all := r.ClassNamespaces(namespace)
	if all || !s.Kind.Namespaced {
		s.Each(visit)
		return
	}
	for _, name := range names {
		s.in(name).all.Each(func(c *Class, _ struct{}) { visit(c) })
	}
}
