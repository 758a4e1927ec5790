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
	// defaults are marked default, and of the faulty something is wrong.
	defaults, faulty classSet
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

// What may be wrong with a class.
var (
	MalformedWeight   = func(c *Class) bool { return c.WeightErr != nil }
	MalformedMark     = func(c *Class) bool { return c.MarkErr != nil }
	MalformedCapacity = func(c *Class) bool { return c.Capacity != nil && c.Capacity.Err != nil }
	OfferFailed       = func(c *Class) bool { return c.OfferErr != nil }
	TooManyLabels     = func(c *Class) bool { return c.TooManyLabels }
)

func isFaulty(c *Class) bool {
	return MalformedWeight(c) || MalformedMark(c) || MalformedCapacity(c) || OfferFailed(c) || TooManyLabels(c)
}

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
	s := &Classes{
		Kind: kind, byName: newTable(byName), defaults: newClassSet(classes, isDefault), faulty: newClassSet(classes, isFaulty),
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

// Faulty are the classes with which this is wrong, sorted.
func (s *Classes) Faulty(isWrong func(*Class) bool) []*Class {
	return slices.DeleteFunc(sorted(s.faulty), func(c *Class) bool { return !isWrong(c) })
}

// SameSummary reports whether both have the same kind and number of classes, and the same default and faulty ones.
func (s *Classes) SameSummary(o *Classes) bool {
	return s.Kind == o.Kind && s.Len() == o.Len() && s.defaults == o.defaults && s.faulty == o.faulty
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
	s.defaults, s.faulty = exchanged(s.defaults, old, c, isDefault), exchanged(s.faulty, old, c, isFaulty)
}

// exchanged returns a set with another version of a class, if they belong to it. Either may be nil.
func exchanged(s classSet, old, c *Class, belongs func(*Class) bool) classSet {
	if old != nil && belongs(old) {
		s = s.Without(old)
	}
	if c != nil && belongs(c) {
		s = s.With(c, struct{}{})
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
