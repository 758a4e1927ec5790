package selector

import (
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
	slices.SortFunc(classes, compare)
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

// Has says whether there is a class of that name.
func (x *Index) Has(namespace, name string) bool {
	_, found := slices.BinarySearchFunc(x.Classes, &Class{Kind: x.Kind, Namespace: namespace, Name: name}, compare)
	return found
}

// each visits the classes that a query asks for, by way of its most selective
// term: the work grows with the classes that have that label, not with all
// classes. A selector that only excludes has no such term.
func (x *Index) each(q *query, visit func(*Class)) {
	if q.selector == nil {
		for _, c := range x.Defaults {
			visit(c)
		}
		return
	}
	matching := func(classes []*Class) {
		for _, c := range classes {
			if q.selector.Matches(c.Labels) {
				visit(c)
			}
		}
	}
	switch t, _ := x.shortest(q); {
	case t == nil:
		matching(x.Classes)
	case t.values == nil:
		matching(x.byKey[t.key])
	default: // A class has one value for a key: none is visited twice.
		for _, value := range t.values {
			matching(x.byLabel[label{t.key, value}])
		}
	}
}

// shortest is the term that the fewest classes meet, nil where none spares a
// look at all of them, and how many that is.
func (x *Index) shortest(q *query) (*term, int) {
	var best *term
	fewest := len(x.Classes)
	for i := range q.terms {
		t := &q.terms[i]
		count := 0
		if t.values == nil {
			count = len(x.byKey[t.key])
		}
		for _, value := range t.values {
			count += len(x.byLabel[label{t.key, value}])
		}
		if count < fewest {
			best, fewest = t, count
		}
	}
	return best, fewest
}

// query is a selector with those of its requirements that the index knows.
type query struct {
	selector labels.Selector
	terms    []term
}

// term asks for a key, with one of the values, or with any where there are none.
type term struct {
	key    string
	values []string
}

// newQuery is made once for the indexes of all kinds.
func newQuery(s labels.Selector) *query {
	q := &query{selector: s}
	if s == nil {
		return q
	}
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			values := r.ValuesUnsorted() // A copy, in which values may stand twice.
			slices.Sort(values)
			q.terms = append(q.terms, term{r.Key(), slices.Compact(values)})
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			q.terms = append(q.terms, term{key: r.Key()})
		default: // NotIn and DoesNotExist select by absence, which is not indexed.
		}
	}
	return q
}
