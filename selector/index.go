package selector

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Index is the classes of one kind and where each label occurs among them. It
// is immutable.
type Index struct {
	Kind *ClassKind
	// Classes in their order.
	Classes []*Class
	// Defaults are those of them that are marked default.
	Defaults []*Class

	byKey   map[string][]*Class
	byLabel map[label][]*Class
}

type label struct{ key, value string }

// NewIndex takes the classes over.
func NewIndex(kind *ClassKind, classes []*Class) *Index {
	slices.SortFunc(classes, func(a, b *Class) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	x := &Index{Kind: kind, Classes: classes, byKey: map[string][]*Class{}, byLabel: map[label][]*Class{}}
	for _, c := range classes {
		if c.Default {
			x.Defaults = append(x.Defaults, c)
		}
		for key, value := range c.Labels {
			x.byKey[key] = append(x.byKey[key], c)
			x.byLabel[label{key, value}] = append(x.byLabel[label{key, value}], c)
		}
	}
	return x
}

// matching yields the classes that match the selector, by way of its most
// selective requirement: the work grows with the classes that have that label,
// not with all classes. A selector that only excludes has no such requirement.
func (x *Index) matching(s labels.Selector) iter.Seq[*Class] {
	return func(yield func(*Class) bool) {
		requirements, _ := s.Requirements()
		for _, classes := range x.shortest(requirements) {
			for _, c := range classes {
				if s.Matches(c.Labels) && !yield(c) {
					return
				}
			}
		}
	}
}

// shortest returns the classes that meet the requirement which the fewest
// meet, as disjoint lists: one for each value that it allows.
func (x *Index) shortest(requirements labels.Requirements) [][]*Class {
	best := [][]*Class{x.Classes}
	fewest := len(x.Classes)
	for _, r := range requirements {
		var lists [][]*Class
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			for _, value := range r.ValuesUnsorted() {
				lists = append(lists, x.byLabel[label{r.Key(), value}])
			}
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			lists = append(lists, x.byKey[r.Key()])
		default: // NotIn and DoesNotExist select by absence, which is not indexed.
			continue
		}
		count := 0
		for _, l := range lists {
			count += len(l)
		}
		if count < fewest {
			best, fewest = lists, count
		}
	}
	return best
}
