package inventory

import (
	"hash/maphash"
	"slices"
	"unique"

	"github.com/classbind/classbind/selector/claim"
)

// index finds classes of several kinds by their labels. Like them, it is immutable.
type index struct {
	// classes counts all classes, with labels or without.
	classes int
	byKey   table[text, keyClasses]
	derived *derivation
}

// keyClasses are the classes that have one label key.
type keyClasses struct {
	key     unique.Handle[string]
	classes int
	byValue table[text, valueClasses]
}

// valueClasses are the classes that have one label.
type valueClasses struct {
	label   unique.Handle[label]
	classes classSet
}

// text is a key or a value of a label.
type text string

func (t text) Hash() uint64 { return maphash.String(claim.Seed, string(t)) }

func newIndex(kinds []*Classes, derived *derivation) *index {
	byLabel := map[unique.Handle[label]][]*Class{}
	all := 0
	for _, classes := range kinds {
		all += classes.Len()
		classes.Each(func(c *Class) {
			for _, l := range derived.labels(c) {
				byLabel[l.label] = append(byLabel[l.label], c)
			}
		})
	}
	byValue := map[unique.Handle[string]][]entry[text, valueClasses]{}
	for l, classes := range byLabel {
		key, value := l.Value().key, text(l.Value().value)
		byValue[key] = append(byValue[key], entry[text, valueClasses]{Key: value, Value: valueClasses{l, newClassSet(classes, isAny)}})
	}
	var byKey []entry[text, keyClasses]
	for key, values := range byValue {
		of := keyClasses{key: key}
		for _, e := range values {
			of.classes += e.Value.classes.Len()
		}
		of.byValue = newTable(values)
		byKey = append(byKey, entry[text, keyClasses]{Key: text(key.Value()), Value: of})
	}
	return &index{all, newTable(byKey), derived}
}

// changed returns the index after the class of this name changed.
func (x *index) changed(from, to *Classes, name className) *index {
	old, c := from.find(name), to.find(name)
	if old == c {
		return x
	}
	next := *x
	next.classes += to.Len() - from.Len()
	next.exchange(old, c)
	return &next
}

// exchange one version of a class for another, in an index that nobody else has yet. Either may be nil.
func (x *index) exchange(old, c *Class) {
	before, after := x.derived.labels(old), x.derived.labels(c)
	for _, l := range before {
		if slices.Contains(after, l) {
			x.exchangeLabel(l, old, c)
		} else {
			x.exchangeLabel(l, old, nil)
		}
	}
	for _, l := range after {
		if !slices.Contains(before, l) {
			x.exchangeLabel(l, nil, c)
		}
	}
}

// exchangeLabel does that for one label.
func (x *index) exchangeLabel(l keyed, old, c *Class) {
	key, value := text(l.key.Value()), text(l.label.Value().value)
	of, _ := x.byKey.Get(key)
	has, _ := of.byValue.Get(value)
	classes := exchanged(has.classes, old, c, isAny)
	of.key = l.key
	of.classes += classes.Len() - has.classes.Len()
	if classes.Len() > 0 {
		of.byValue = of.byValue.With(value, valueClasses{l.label, classes})
	} else {
		of.byValue = of.byValue.Without(value)
	}
	if of.classes > 0 {
		x.byKey = x.byKey.With(key, of)
	} else {
		x.byKey = x.byKey.Without(key)
	}
}

// each visits the classes that match a query. It looks only at those that its most selective term selects, so the work grows with those and
// not with all classes. It returns false, and visits none, if no term selects, as in a selector that only excludes, or if each term selects
// more than limit classes. Then the query is ready to match each class.
func (x *index) each(q *query, limit int, visit func(*Class)) bool {
	best, of, fewest := x.mostSelective(q)
	if q.nothing {
		return true
	}
	if best < 0 || fewest > limit {
		q.sort()
		return false
	}
	t := q.terms[best]
	if len(q.terms) == 1 && t.asks <= exists { // All selected classes match.
		q.terms = nil
	} else {
		q.sort()
	}
	matching := func(c *Class, _ struct{}) {
		if q.matches(c.Labels) {
			visit(c)
		}
	}
	if t.asks != in {
		of.byValue.Each(func(_ text, has valueClasses) { has.classes.Each(matching) })
		return true
	}
	for _, v := range t.values { // A class has one value for a key: none is visited twice.
		v.classes.Each(matching)
	}
	return true
}

// eachOf visits the classes with this value of a key.
func (x *index) eachOf(key, value text, visit func(*Class)) {
	withKey, _ := x.byKey.Get(key)
	has, _ := withKey.byValue.Get(value)
	has.classes.Each(func(c *Class, _ struct{}) { visit(c) })
}

// mostSelective finds the term that the fewest classes can meet, negative if all terms only exclude, the classes that have its key, and how
// many of them to look at. It also resolves the terms, and settles those that say the same of every class.
func (x *index) mostSelective(q *query) (best int, of keyClasses, fewest int) {
	best = -1
	kept := 0
	for i := range q.terms {
		t := &q.terms[i]
		withKey, _ := x.byKey.Get(t.key)
		switch count, has := t.resolve(&withKey), t.asks.byPresence(); {
		case count == 0 && has, count == x.classes && !has:
			q.terms, q.nothing = nil, true
			return -1, of, 0
		case count == 0, count == x.classes && t.asks != greater && t.asks != less:
			continue // Every class meets it.
		case has && (best < 0 || count < fewest):
			best, of, fewest = kept, withKey, count
		}
		if kept < i {
			q.terms[kept] = *t
		}
		kept++
	}
	q.terms = q.terms[:kept]
	return best, of, fewest
}
