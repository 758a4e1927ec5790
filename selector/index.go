package selector

import (
	"slices"
	"unique"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// index is where each label occurs among classes of several kinds. Like them it
// is immutable.
type index struct {
	byKey dict[text, labelled]
}

// labelled are the classes that have a label of one key.
type labelled struct {
	classes int
	byValue dict[text, classSet]
}

type text string

func (t text) hash() uint64 { return xxhash.Sum64String(string(t)) }

func newIndex(kinds []*Classes) *index {
	byLabel := map[unique.Handle[label]][]*Class{}
	for _, classes := range kinds {
		classes.byName.each(func(_ className, c *Class) {
			for _, l := range c.Labels {
				byLabel[l] = append(byLabel[l], c)
			}
		})
	}
	byValue := map[text][]entry[text, classSet]{}
	for l, classes := range byLabel {
		key, value := text(l.Value().key), text(l.Value().value)
		byValue[key] = append(byValue[key], entry[text, classSet]{newClassSet(classes), value})
	}
	var byKey []entry[text, labelled]
	for key, values := range byValue {
		of := labelled{}
		for _, e := range values {
			of.classes += e.value.size
		}
		of.byValue = newDict(values)
		byKey = append(byKey, entry[text, labelled]{of, key})
	}
	return &index{newDict(byKey)}
}

// changed with the classes of one kind.
func (x *index) changed(from, to *Classes) *index {
	next := *x
	diff(from.byName.root, to.byName.root,
		func(c *Class) {
			for _, l := range c.Labels {
				next.label(l.Value(), -1, func(s classSet) classSet { return s.without(c) })
			}
		},
		func(c *Class) {
			for _, l := range c.Labels {
				next.label(l.Value(), 1, func(s classSet) classSet { return s.with(c, struct{}{}) })
			}
		})
	return &next
}

// label one class more, or less, in an index that nobody else has yet.
func (x *index) label(l label, more int, change func(classSet) classSet) {
	key, value := text(l.key), text(l.value)
	of, _ := x.byKey.get(key.hash(), key)
	if of.classes += more; of.classes == 0 {
		x.byKey = x.byKey.without(key)
		return
	}
	classes, _ := of.byValue.get(value.hash(), value)
	if classes = change(classes); classes.size > 0 {
		of.byValue = of.byValue.with(value, classes)
	} else {
		of.byValue = of.byValue.without(value)
	}
	x.byKey = x.byKey.with(key, of)
}

// each visits the classes that a query asks for, by way of its most selective
// term: the work grows with the classes that have that label, not with all
// classes. It visits none and is false for a query without such a term, as of a
// selector that only excludes.
func (x *index) each(q *query, visit func(*Class)) bool {
	t, of := x.shortest(q)
	if t == nil {
		return false
	}
	matching := func(c *Class, _ struct{}) {
		if q.told || q.selector.Matches(&c.Labels) {
			visit(c)
		}
	}
	if t.values == nil {
		of.byValue.each(func(_ text, classes classSet) { classes.each(matching) })
	}
	for _, v := range t.values { // A class has one value for a key: none is visited twice.
		classes, _ := of.byValue.get(v.hash, v.text)
		classes.each(matching)
	}
	return true
}

// shortest is the term that the fewest classes meet, nil where there is none, and
// the classes that have a label of its key.
func (x *index) shortest(q *query) (best *term, of labelled) {
	fewest := 0
	for i := range q.terms {
		t := &q.terms[i]
		labelled, _ := x.byKey.get(t.key.hash, t.key.text)
		count := labelled.classes
		if t.values != nil {
			count = 0
			for _, v := range t.values {
				classes, _ := labelled.byValue.get(v.hash, v.text)
				count += classes.size
			}
		}
		if best == nil || count < fewest {
			best, of, fewest = t, labelled, count
		}
	}
	return best, of
}

// query is a selector with those of its requirements that the index knows.
type query struct {
	selector labels.Selector
	terms    []term
	// told says that the one term is all that the selector asks for.
	told bool
}

// term asks for a key, with one of the values, or with any where there are none.
type term struct {
	key    hashed
	values []hashed
}

// hashed is a text that is looked up.
type hashed struct {
	text text
	hash uint64
}

func hash(s string) hashed { return hashed{text(s), text(s).hash()} }

func newQuery(s labels.Selector) query {
	q := query{selector: s}
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
			q.told = len(requirements) == 1
		case selection.Exists:
			q.terms = append(q.terms, term{key: hash(r.Key())})
			q.told = len(requirements) == 1
		case selection.GreaterThan, selection.LessThan:
			q.terms = append(q.terms, term{key: hash(r.Key())})
		default: // NotIn and DoesNotExist select by absence, which is not indexed.
		}
	}
	return q
}
