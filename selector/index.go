package selector

import (
	"cmp"
	"slices"
	"unique"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Index is the classes of one kind and where each label occurs among them. It
// is immutable; one that differs in a class shares the rest with it.
type Index struct {
	Kind *ClassKind

	classes  dict[className, *Class]
	defaults classSet
	// malformed have a weight that cannot be read.
	malformed classSet
	byKey     dict[text, *labelled]
}

// labelled are the classes that have a label of one key.
type labelled struct {
	classes int
	byValue dict[text, classSet]
}

type (
	classSet  = dict[*Class, struct{}]
	className struct{ namespace, name string }
	text      string
)

// An index has the classes of one kind.
func (c *Class) hash() uint64 { return c.kindless }

func (n className) hash() uint64 { return hashOf("", "", n.namespace, n.name) }

func (t text) hash() uint64 { return xxhash.Sum64String(string(t)) }

// NewIndex of classes of one kind, of which no two have one name.
func NewIndex(kind *ClassKind, classes []*Class) *Index {
	classes = slices.Clone(classes)
	slices.SortFunc(classes, func(a, b *Class) int { return cmp.Compare(a.hash(), b.hash()) })
	var (
		byName              []entry[className, *Class]
		defaults, malformed []*Class
		byLabel             = map[unique.Handle[label]][]*Class{}
		byValue             = map[text][]entry[text, classSet]{}
		byKey               []entry[text, *labelled]
	)
	for _, c := range classes {
		byName = append(byName, entry[className, *Class]{c, className{c.Namespace, c.Name}})
		if c.Default {
			defaults = append(defaults, c)
		}
		if c.WeightErr != nil {
			malformed = append(malformed, c)
		}
		for _, l := range c.Labels {
			byLabel[l] = append(byLabel[l], c)
		}
	}
	for l, classes := range byLabel {
		key, value := text(l.Value().key), text(l.Value().value)
		byValue[key] = append(byValue[key], entry[text, classSet]{newClassSet(classes), value})
	}
	for key, values := range byValue {
		of := &labelled{byValue: newDict(values)}
		for _, e := range values {
			of.classes += e.value.size
		}
		byKey = append(byKey, entry[text, *labelled]{of, key})
	}
	return &Index{
		Kind: kind, classes: newDict(byName), byKey: newDict(byKey),
		defaults: newClassSet(defaults), malformed: newClassSet(malformed),
	}
}

func newClassSet(classes []*Class) classSet {
	entries := make([]entry[*Class, struct{}], len(classes))
	for i, c := range classes {
		entries[i].key = c
	}
	return newDict(entries)
}

// With a class, in the place of the one of that name, if there is one. It is the
// same index where nothing has changed.
func (x *Index) With(c *Class) *Index {
	next := *x
	if next.put(c) {
		return &next
	}
	return x
}

// Without the class of a name.
func (x *Index) Without(namespace, name string) *Index {
	c := x.find(namespace, name)
	if c == nil {
		return x
	}
	next := *x
	next.remove(c)
	return &next
}

// Len is the number of classes.
func (x *Index) Len() int { return x.classes.size }

// Has says whether there is a class of that name.
func (x *Index) Has(namespace, name string) bool { return x.find(namespace, name) != nil }

// Classes in their order, which is made anew each time.
func (x *Index) Classes() []*Class {
	all := make([]*Class, 0, x.Len())
	x.classes.each(func(_ className, c *Class) { all = append(all, c) })
	slices.SortFunc(all, compare)
	return all
}

// Defaults are the classes marked default, in their order.
func (x *Index) Defaults() []*Class { return sorted(x.defaults) }

// Malformed are the classes whose weight cannot be read, in their order.
func (x *Index) Malformed() []*Class { return sorted(x.malformed) }

// Resembles another index, of the same kind, that has as many classes, and the
// same default and malformed ones.
func (x *Index) Resembles(o *Index) bool {
	return x.Kind == o.Kind && x.Len() == o.Len() && x.defaults == o.defaults && x.malformed == o.malformed
}

func sorted(s classSet) []*Class {
	all := make([]*Class, 0, s.size)
	s.each(func(c *Class, _ struct{}) { all = append(all, c) })
	slices.SortFunc(all, compare)
	return all
}

func (x *Index) find(namespace, name string) *Class {
	n := className{namespace, name}
	c, _ := x.classes.get(n.hash(), n)
	return c
}

// put a class into an index that nobody else has yet. It says whether that changes it.
func (x *Index) put(c *Class) bool {
	if old := x.find(c.Namespace, c.Name); old != nil {
		if old.equal(c) {
			return false
		}
		x.remove(old)
	}
	x.classes = x.classes.with(className{c.Namespace, c.Name}, c)
	if c.Default {
		x.defaults = x.defaults.with(c, struct{}{})
	}
	if c.WeightErr != nil {
		x.malformed = x.malformed.with(c, struct{}{})
	}
	for _, h := range c.Labels {
		x.label(h.Value(), 1, func(s classSet) classSet { return s.with(c, struct{}{}) })
	}
	return true
}

// remove a class from an index that nobody else has yet.
func (x *Index) remove(c *Class) {
	x.classes = x.classes.without(className{c.Namespace, c.Name})
	x.defaults = x.defaults.without(c)
	x.malformed = x.malformed.without(c)
	for _, h := range c.Labels {
		x.label(h.Value(), -1, func(s classSet) classSet { return s.without(c) })
	}
}

// label one class more, or less.
func (x *Index) label(l label, more int, change func(classSet) classSet) {
	key, value := text(l.key), text(l.value)
	next := labelled{}
	if of, ok := x.byKey.get(key.hash(), key); ok {
		next = *of
	}
	next.classes += more
	if next.classes == 0 {
		x.byKey = x.byKey.without(key)
		return
	}
	classes, _ := next.byValue.get(value.hash(), value)
	if classes = change(classes); classes.size > 0 {
		next.byValue = next.byValue.with(value, classes)
	} else {
		next.byValue = next.byValue.without(value)
	}
	x.byKey = x.byKey.with(key, &next)
}

// each visits the classes that a query asks for, by way of its most selective
// term: the work grows with the classes that have that label, not with all
// classes. A selector that only excludes has no such term.
func (x *Index) each(q *query, visit func(*Class)) {
	if q.selector == nil {
		x.defaults.each(func(c *Class, _ struct{}) { visit(c) })
		return
	}
	matching := func(c *Class, _ struct{}) {
		if q.selector.Matches(&c.Labels) {
			visit(c)
		}
	}
	t, of, _ := x.shortest(q)
	switch {
	case t == nil:
		x.classes.each(func(_ className, c *Class) { matching(c, struct{}{}) })
	case of == nil:
	case t.values == nil:
		of.byValue.each(func(_ text, classes classSet) { classes.each(matching) })
	default: // A class has one value for a key: none is visited twice.
		for _, v := range t.values {
			classes, _ := of.byValue.get(v.hash, v.text)
			classes.each(matching)
		}
	}
}

// shortest is the term that the fewest classes meet, nil where none spares a
// look at all of them; those that have a label of its key, and how many meet it.
func (x *Index) shortest(q *query) (best *term, of *labelled, fewest int) {
	fewest = x.Len()
	for i := range q.terms {
		t := &q.terms[i]
		labelled, ok := x.byKey.get(t.key.hash, t.key.text)
		if !ok {
			return t, nil, 0
		}
		count := labelled.classes
		if t.values != nil {
			count = 0
			for _, v := range t.values {
				classes, _ := labelled.byValue.get(v.hash, v.text)
				count += classes.size
			}
		}
		if count < fewest {
			best, of, fewest = t, labelled, count
		}
	}
	return best, of, fewest
}

// query is a selector with those of its requirements that the index knows.
type query struct {
	selector labels.Selector
	terms    []term
}

// term asks for a key, with one of the values, or with any where there are none.
type term struct {
	key    hashed
	values []hashed
}

// hashed is a text that is looked up in the indexes of many kinds.
type hashed struct {
	text text
	hash uint64
}

func hash(s string) hashed { return hashed{text(s), text(s).hash()} }

// newQuery is made once for the indexes of all kinds.
func newQuery(s labels.Selector) query {
	q := query{selector: s}
	if s == nil {
		return q
	}
	requirements, _ := s.Requirements()
	q.terms = make([]term, 0, len(requirements))
	values := make([]hashed, 0, len(requirements)) // of all terms: mostly, each has one
	for i := range requirements {
		r := &requirements[i]
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			asked := r.ValuesUnsorted() // A copy, in which values may stand twice.
			slices.Sort(asked)
			from := len(values)
			for _, value := range slices.Compact(asked) {
				values = append(values, hash(value))
			}
			q.terms = append(q.terms, term{hash(r.Key()), values[from:len(values):len(values)]})
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			q.terms = append(q.terms, term{key: hash(r.Key())})
		default: // NotIn and DoesNotExist select by absence, which is not indexed.
		}
	}
	return q
}
