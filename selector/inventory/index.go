package inventory

import (
	"cmp"
	"hash/maphash"
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
		classes.byName.Each(func(_ className, c *Class) {
			derived.each(c, func(l keyed) { byLabel[l.label] = append(byLabel[l.label], c) })
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
	var room [2][16]keyed // for all but few classes
	before, after := x.derived.sorted(old, room[0][:0]), x.derived.sorted(c, room[1][:0])
	for len(before) > 0 || len(after) > 0 {
		var had, has *keyed // with the same key
		order := compareKeys(before, after)
		if order <= 0 {
			had, before = &before[0], before[1:]
		}
		if order >= 0 {
			has, after = &after[0], after[1:]
		}
		x.exchangeLabel(had, has, old, c)
	}
}

// exchangeLabel does that for the labels of one key.
func (x *index) exchangeLabel(had, has *keyed, old, c *Class) {
	l := cmp.Or(has, had)
	key := text(l.key.Value())
	of, _ := x.byKey.Get(l.hash, key)
	of.key = l.key
	if had != nil && has != nil && had.label == has.label {
		of.exchange(l, old, c)
	} else {
		of.exchange(had, old, nil)
		of.exchange(has, nil, c)
	}
	if of.classes == 0 {
		x.byKey = x.byKey.Without(key)
	} else {
		x.byKey = x.byKey.With(key, of)
	}
}

// exchange two versions of a class that have the same label, or add or remove one. It does nothing without a label.
func (k *keyClasses) exchange(l *keyed, old, c *Class) {
	if l == nil {
		return
	}
	value := text(l.label.Value().value)
	has, _ := k.byValue.Get(value.Hash(), value)
	classes := exchanged(has.classes, old, c, isAny)
	k.classes += classes.Len() - has.classes.Len()
	if classes.Len() > 0 {
		k.byValue = k.byValue.With(value, valueClasses{l.label, classes})
	} else {
		k.byValue = k.byValue.Without(value)
	}
}

// compareKeys of the first of some labels, and of the first of others. None comes last; one of them has some.
func compareKeys(a, b []keyed) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return compareKeyed(a[0], b[0])
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
	for _, v := range q.valuesOf(&t) { // A class has one value for a key: none is visited twice.
		has, _ := of.byValue.Get(v.hash, v.text)
		has.classes.Each(matching)
	}
	return true
}

// eachOf visits the classes with this value of a key.
func (x *index) eachOf(key, value text, visit func(*Class)) {
	withKey, _ := x.byKey.Get(key.Hash(), key)
	has, _ := withKey.byValue.Get(value.Hash(), value)
	has.classes.Each(func(c *Class, _ struct{}) { visit(c) })
}

// mostSelective finds the term that the fewest classes can meet, negative if all terms only exclude, the classes that have its key, and how
// many of them to look at. It also resolves the terms, and settles those that say the same of every class.
func (x *index) mostSelective(q *query) (best int, of keyClasses, fewest int) {
	best = -1
	kept := 0
	for i := range q.terms {
		t := &q.terms[i]
		withKey, _ := x.byKey.Get(t.key.hash, t.key.text)
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
