package selector

import (
	"hash/maphash"
	"unique"
)

// index finds classes of several kinds by their labels. Like them, it is immutable.
type index struct {
	// classes counts all classes, with labels or without.
	classes int
	byKey   dict[text, keyClasses]
	derived *derivation
}

// keyClasses are the classes that have one label key.
type keyClasses struct {
	key     unique.Handle[string]
	classes int
	byValue dict[text, valueClasses]
}

// valueClasses are the classes that have one label.
type valueClasses struct {
	label   unique.Handle[label]
	classes classSet
}

// text is a key or a value of a label.
type text string

func (t text) hash() uint64 { return maphash.String(placeSeed, string(t)) }

func newIndex(kinds []*Classes, derived *derivation) *index {
	byLabel := map[unique.Handle[label]][]*Class{}
	all := 0
	for _, classes := range kinds {
		all += classes.Len()
		classes.byName.each(func(_ className, c *Class) {
			derived.each(c, func(l keyed) { byLabel[l.label] = append(byLabel[l.label], c) })
		})
	}
	byValue := map[unique.Handle[string]][]entry[text, valueClasses]{}
	for l, classes := range byLabel {
		key, value := l.Value().key, text(l.Value().value)
		byValue[key] = append(byValue[key], entry[text, valueClasses]{valueClasses{l, newClassSet(classes)}, value})
	}
	var byKey []entry[text, keyClasses]
	for key, values := range byValue {
		of := keyClasses{key: key}
		for _, e := range values {
			of.classes += e.value.classes.size
		}
		of.byValue = newDict(values)
		byKey = append(byKey, entry[text, keyClasses]{of, text(key.Value())})
	}
	return &index{all, newDict(byKey), derived}
}

// changed returns the index after the classes of one kind changed.
func (x *index) changed(from, to *Classes) *index {
	next := *x
	next.classes += to.Len() - from.Len()
	diff(from.byName.root, to.byName.root,
		func(c *Class) {
			x.derived.each(c, func(l keyed) { next.updateLabel(l, -1, func(s classSet) classSet { return s.without(c) }) })
		},
		func(c *Class) {
			x.derived.each(c, func(l keyed) { next.updateLabel(l, 1, func(s classSet) classSet { return s.with(c, struct{}{}) }) })
		})
	return &next
}

// updateLabel adds or removes a class of one label, in an index that nobody else has
// yet.
func (x *index) updateLabel(l keyed, more int, change func(classSet) classSet) {
	key, value := text(l.key.Value()), text(l.label.Value().value)
	of, _ := x.byKey.get(l.hash, key)
	if of.classes += more; of.classes == 0 {
		x.byKey = x.byKey.without(key)
		return
	}
	of.key = l.key
	has, _ := of.byValue.get(value.hash(), value)
	if classes := change(has.classes); classes.size > 0 {
		of.byValue = of.byValue.with(value, valueClasses{l.label, classes})
	} else {
		of.byValue = of.byValue.without(value)
	}
	x.byKey = x.byKey.with(key, of)
}

// each visits the classes that match a query. It looks only at those that its most
// selective term selects, so the work grows with those and not with all classes. It
// returns false, and visits none, if no term selects, as in a selector that only
// excludes, or if each term selects more than limit classes. Then the query is ready
// to match each class.
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
		of.byValue.each(func(_ text, has valueClasses) { has.classes.each(matching) })
		return true
	}
	for _, v := range q.valuesOf(&t) { // A class has one value for a key: none is visited twice.
		has, _ := of.byValue.get(v.hash, v.text)
		has.classes.each(matching)
	}
	return true
}

// eachOf visits the classes with this value of a key.
func (x *index) eachOf(key, value text, visit func(*Class)) {
	withKey, _ := x.byKey.get(key.hash(), key)
	has, _ := withKey.byValue.get(value.hash(), value)
	has.classes.each(func(c *Class, _ struct{}) { visit(c) })
}

// mostSelective finds the term that the fewest classes can meet, negative if all terms
// only exclude, the classes that have its key, and how many of them to look at. It also
// resolves the terms, and settles those that say the same of every class.
func (x *index) mostSelective(q *query) (best int, of keyClasses, fewest int) {
	best = -1
	kept := 0
	for i := range q.terms {
		t := &q.terms[i]
		withKey, _ := x.byKey.get(t.key.hash, t.key.text)
		switch count, has := q.resolveTerm(t, &withKey), t.asks.byPresence(); {
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
