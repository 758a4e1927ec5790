package selector

import (
	"hash/maphash"
	"unique"
)

// index is where each label occurs among classes of several kinds. Like them it
// is immutable.
type index struct {
	// classes that there are, labelled or not.
	classes int
	byKey   dict[text, labelled]
}

// labelled are the classes that have a label of one key.
type labelled struct {
	key     unique.Handle[string]
	classes int
	byValue dict[text, labelledSo]
}

// labelledSo are the classes that have one label.
type labelledSo struct {
	label   unique.Handle[label]
	classes classSet
}

// text is a key or a value of a label.
type text string

func (t text) hash() uint64 { return maphash.String(placeSeed, string(t)) }

func newIndex(kinds []*Classes) *index {
	byLabel := map[unique.Handle[label]][]*Class{}
	all := 0
	for _, classes := range kinds {
		all += classes.Len()
		classes.byName.each(func(_ className, c *Class) {
			for _, l := range c.Labels {
				byLabel[l.label] = append(byLabel[l.label], c)
			}
		})
	}
	byValue := map[unique.Handle[string]][]entry[text, labelledSo]{}
	for l, classes := range byLabel {
		key, value := l.Value().key, text(l.Value().value)
		byValue[key] = append(byValue[key], entry[text, labelledSo]{labelledSo{l, newClassSet(classes)}, value})
	}
	var byKey []entry[text, labelled]
	for key, values := range byValue {
		of := labelled{key: key}
		for _, e := range values {
			of.classes += e.value.classes.size
		}
		of.byValue = newDict(values)
		byKey = append(byKey, entry[text, labelled]{of, text(key.Value())})
	}
	return &index{all, newDict(byKey)}
}

// changed with the classes of one kind.
func (x *index) changed(from, to *Classes) *index {
	next := *x
	next.classes += to.Len() - from.Len()
	diff(from.byName.root, to.byName.root,
		func(c *Class) {
			for _, l := range c.Labels {
				next.label(l, -1, func(s classSet) classSet { return s.without(c) })
			}
		},
		func(c *Class) {
			for _, l := range c.Labels {
				next.label(l, 1, func(s classSet) classSet { return s.with(c, struct{}{}) })
			}
		})
	return &next
}

// label one class more, or less, in an index that nobody else has yet.
func (x *index) label(l keyed, more int, change func(classSet) classSet) {
	key, value := text(l.key.Value()), text(l.label.Value().value)
	of, _ := x.byKey.get(l.hash, key)
	if of.classes += more; of.classes == 0 {
		x.byKey = x.byKey.without(key)
		return
	}
	of.key = l.key
	has, _ := of.byValue.get(value.hash(), value)
	if classes := change(has.classes); classes.size > 0 {
		of.byValue = of.byValue.with(value, labelledSo{l.label, classes})
	} else {
		of.byValue = of.byValue.without(value)
	}
	x.byKey = x.byKey.with(key, of)
}

// each visits the classes that a query asks for, by way of its most selective
// term: the work grows with the classes that have that label, not with all
// classes. It is false for a query without such a term, as of a selector that only
// excludes, and for one of which more than so many classes meet every term: it
// visits none then, and has left in the query what is to be asked.
func (x *index) each(q *query, most int, visit func(*Class)) bool {
	way, of, fewest := x.way(q)
	if q.nothing {
		return true
	}
	if way < 0 || fewest > most {
		q.sort()
		return false
	}
	t := q.terms[way]
	if len(q.terms) == 1 && t.asks <= exists { // All that are on the way match.
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
		of.byValue.each(func(_ text, has labelledSo) { has.classes.each(matching) })
		return true
	}
	for _, v := range q.valuesOf(&t) { // A class has one value for a key: none is visited twice.
		has, _ := of.byValue.get(v.hash, v.text)
		has.classes.each(matching)
	}
	return true
}

// way is the term that the fewest classes can meet, negative where each only
// excludes, with the classes that have its key, and with how many of them are to be
// asked. On the way, it resolves the terms, and settles those that say the same of
// every class.
func (x *index) way(q *query) (best int, of labelled, fewest int) {
	best = -1
	kept := 0
	for i := range q.terms {
		t := &q.terms[i]
		labelled, _ := x.byKey.get(t.key.hash, t.key.text)
		switch count, has := q.resolveTerm(t, &labelled), t.asks.byPresence(); {
		case count == 0 && has, count == x.classes && !has:
			q.terms, q.nothing = nil, true
			return -1, of, 0
		case count == 0, count == x.classes && t.asks != greater && t.asks != less:
			continue // Every class meets it.
		case has && (best < 0 || count < fewest):
			best, of, fewest = kept, labelled, count
		}
		if kept < i {
			q.terms[kept] = *t
		}
		kept++
	}
	q.terms = q.terms[:kept]
	return best, of, fewest
}
