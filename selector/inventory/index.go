package inventory

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/rules"
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
	for _, l := range x.derived.labels(old) {
		x.exchangeLabel(l, old, nil)
	}
	for _, l := range x.derived.labels(c) {
		x.exchangeLabel(l, nil, c)
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

// Each visits the classes of this namespace's offer that a claim asks for, with the values of its equality terms.
func (o *Offer) Each(namespace string, asked labels.Selector, values Values, visit func(*Class)) {
	q := newQuery(asked)
	if o.derivation != nil {
		q = o.withEqualities(q, values)
		all := visit
		visit = func(c *Class) {
			if o.equals(values, c) {
				all(c)
			}
		}
	}
	switch {
	case o.index == nil:
		q.resolve()
	case o.eachIndexed(namespace, &q, visit):
		return
	}
	if q.nothing {
		return
	}
	for _, s := range o.Classes {
		s.EachOffered(&o.demand.Reach, namespace, func(c *Class) {
			if q.matches(c.Labels) {
				visit(c)
			}
		})
	}
}

// eachIndexed does the same with the index. It visits none, and returns false, if the index saves no work.
func (o *Offer) eachIndexed(namespace string, q *query, visit func(*Class)) bool {
	if !o.Partly() {
		return o.index.each(q, math.MaxInt, visit)
	}
	return o.index.each(q, o.LenOffered(namespace), func(c *Class) {
		if o.demand.Offers(namespace, c.Namespace) {
			visit(c)
		}
	})
}

// equals reports whether a class meets the equality terms that the index answers, with or without
// an index: a class that does not is not asked for, as if the selector said so.
func (o *Offer) equals(values Values, c *Class) bool {
	for _, fits := range [...][]*rules.Fit{o.demand.Fits, c.Kind.ForClaims.Fits} {
		for value := range values.indexed(fits) {
			if !value.Equals(c) {
				return false
			}
		}
	}
	return true
}

// withEqualities adds the equality terms of the claim kind that the index can answer. Those of
// a class kind select only where no other kind serves the claim kind.
func (o *Offer) withEqualities(q query, values Values) query {
	if o.index == nil {
		return q
	}
	fits := o.demand.Fits
	if len(o.All) == 1 {
		fits = slices.Concat(fits, o.All[0].Kind.ForClaims.Fits)
	}
	for value := range values.indexed(fits) {
		key := text(value.Equality.Key)
		q.terms = append(q.terms, term{key: key, hash: key.Hash(), values: []queryValue{{text: value.text}}, asks: in, derived: true})
	}
	return q
}

// Partly says that some claims may not be offered all classes.
func (o *Offer) Partly() bool {
	return o.demand.From != v1beta1.FromAll && slices.ContainsFunc(o.Classes, func(s *Classes) bool { return s.Kind.Namespaced })
}

// query is a selector in a form that matches classes faster. It takes one pass over the labels of a class and compares no texts, so the
// longest selector that is allowed costs little more than a short one.
type query struct {
	// terms must all be met. Before matching, they must be resolved and sorted.
	terms []term
	// nothing says that no class can match.
	nothing bool
}

// term is a requirement of a selector.
type term struct {
	key    text
	hash   uint64 // of the key
	asks   relation
	values []queryValue // of in and notIn, none of them twice
	number int64        // of greater and less
	// derived says that the key is none of a label: see derivation. Filters look at such terms again.
	derived bool

	// handle of the key, as the labels of classes have it.
	handle unique.Handle[string]
	// set of the values, if they are more than maxCompared.
	set map[unique.Handle[label]]struct{}
}

// queryValue of a term, and the label and the classes that have it.
type queryValue struct {
	text    text
	label   unique.Handle[label]
	classes classSet
}

// relation that a term asks for, between its key, its values and a label.
type relation int8

const (
	in relation = iota
	exists
	greater
	less
	notIn
	absent
)

// byPresence says that only classes with the key can meet the term.
func (r relation) byPresence() bool { return r < notIn }

// maxCompared is how many values are compared one by one; more are looked up in a set.
const maxCompared = 16

func newQuery(s labels.Selector) (q query) {
	requirements, selectable := s.Requirements()
	q.nothing = !selectable
	q.terms = make([]term, 0, len(requirements))
	for i := range requirements {
		r := &requirements[i]
		t := term{key: text(r.Key()), hash: text(r.Key()).Hash()}
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			t.asks = in
		case selection.NotIn, selection.NotEquals:
			t.asks = notIn
		case selection.Exists:
			t.asks = exists
		case selection.DoesNotExist:
			t.asks = absent
		case selection.GreaterThan:
			t.asks = greater
		case selection.LessThan:
			t.asks = less
		default: // No class meets an unknown operator.
			q.nothing = true
		}
		switch t.asks {
		case in, notIn:
			asked := r.ValuesUnsorted() // A copy, in which values may be repeated.
			slices.Sort(asked)
			for _, v := range slices.Compact(asked) {
				t.values = append(t.values, queryValue{text: text(v)})
			}
		case greater, less:
			var err error
			if t.number, err = strconv.ParseInt(r.ValuesUnsorted()[0], 10, 64); err != nil {
				q.nothing = true
			}
		default: // The others have no values.
		}
		q.terms = append(q.terms, t)
	}
	return q
}

// resolve the terms if there is no index to tell which labels there are.
func (q *query) resolve() {
	for i := range q.terms {
		t := &q.terms[i]
		t.handle = unique.Make(string(t.key))
		for j, v := range t.values {
			t.values[j].label = newLabel(t.handle, string(v.text))
		}
	}
	q.sort()
}

// resolve a term by the classes that have its key, and count those with a label that it asks for. It keeps the values that classes have.
func (t *term) resolve(of *keyClasses) (count int) {
	t.handle = of.key
	if t.asks != in && t.asks != notIn {
		return of.classes
	}
	kept := t.values[:0]
	for _, v := range t.values {
		if has, ok := of.byValue.Get(v.text); ok {
			kept = append(kept, queryValue{v.text, has.label, has.classes})
			count += has.classes.Len()
		}
	}
	t.values = kept
	return count
}

// sort the resolved terms in the order of labels.
func (q *query) sort() {
	q.terms = slices.DeleteFunc(q.terms, func(t term) bool { return t.derived }) // Filters look at these again.
	for i := range q.terms {
		if t := &q.terms[i]; len(t.values) > maxCompared {
			t.set = make(map[unique.Handle[label]]struct{}, len(t.values))
			for _, v := range t.values {
				t.set[v.label] = struct{}{}
			}
		}
	}
	slices.SortFunc(q.terms, func(a, b term) int { return cmp.Compare(a.hash, b.hash) })
}

// matches reports whether a class with these labels meets all terms.
func (q *query) matches(l Labels) bool {
	for i := range q.terms {
		t := &q.terms[i]
		l = l.from(t.hash)
		if !t.isMet(l) {
			return false
		}
	}
	return true
}

// isMet by labels, which begin with those of the hash of its key, if there are any.
func (t *term) isMet(l Labels) bool {
	for i := range l {
		if l[i].hash != t.hash {
			break
		}
		if l[i].key == t.handle {
			return t.holds(l[i].label)
		}
	}
	return !t.asks.byPresence()
}

// holds reports whether a label with the term's key meets the term.
func (t *term) holds(h unique.Handle[label]) bool {
	switch t.asks {
	case exists:
		return true
	case absent:
		return false
	case in:
		return t.has(h)
	case notIn:
		return !t.has(h)
	default:
		n := h.Value().number
		return n != noNumber && (t.asks == greater && n > t.number || t.asks == less && n < t.number)
	}
}

func (t *term) has(h unique.Handle[label]) bool {
	if t.set != nil {
		_, has := t.set[h]
		return has
	}
	for i := range t.values {
		if t.values[i].label == h {
			return true
		}
	}
	return false
}

// tableKey is a key of a table.
type tableKey interface {
	comparable
	// Hash must be one that authors of keys cannot foresee. Otherwise they could give all keys the same.
	Hash() uint64
}

// table is an immutable map, which readers use without a lock while a writer makes the next: chunks of entries in the order of their
// hashes. A change copies one chunk and the list of chunks. The zero value is empty.
//
// A hash array mapped trie (Bagwell 2001, "Ideal Hash Trees") needs twice the code. It makes a change of one of 100,000 classes take a
// third, and a list of them three times as long. Claims find their classes as fast.
type table[K tableKey, V any] struct {
	chunks *[]*[]entry[K, V] // A pointer, so that tables can be compared.
	size   int
}

// entry of a table. The value is first: an empty struct as the last field takes space.
type entry[K tableKey, V any] struct {
	Value V
	hash  uint64
	Key   K
}

// maxChunk is how many entries a chunk has at most, if not all of them have the same hash.
const maxChunk = 256

// newTable makes a table of entries with different keys. It takes the slice over.
func newTable[K tableKey, V any](entries []entry[K, V]) table[K, V] {
	for i := range entries {
		entries[i].hash = entries[i].Key.Hash()
	}
	slices.SortFunc(entries, func(a, b entry[K, V]) int { return cmp.Compare(a.hash, b.hash) })
	return tableOf(split(entries), len(entries))
}

func tableOf[K tableKey, V any](chunks []*[]entry[K, V], size int) table[K, V] {
	if size == 0 {
		return table[K, V]{}
	}
	return table[K, V]{&chunks, size}
}

// split sorted entries into chunks. Those with the same hash are in the same one.
func split[K tableKey, V any](entries []entry[K, V]) (chunks []*[]entry[K, V]) {
	for len(entries) > maxChunk {
		n := maxChunk * 3 / 4 // Some will be added.
		for n < len(entries) && entries[n].hash == entries[n-1].hash {
			n++
		}
		chunks, entries = append(chunks, new(slices.Clone(entries[:n]))), entries[n:]
	}
	if len(entries) > 0 {
		chunks = append(chunks, new(slices.Clone(entries)))
	}
	return chunks
}

// Len counts the keys.
func (t table[K, V]) Len() int { return t.size }

// Get the value of a key.
func (t table[K, V]) Get(k K) (value V, ok bool) {
	if t.size == 0 {
		return value, false
	}
	c, i, ok := t.find(k.Hash(), k)
	if ok {
		value = (*(*t.chunks)[c])[i].Value
	}
	return value, ok
}

// find the chunk and the index in it of a key, or where it belongs, in a table that is not empty.
func (t table[K, V]) find(hash uint64, k K) (chunk, i int, ok bool) {
	chunk, found := slices.BinarySearchFunc(*t.chunks, hash, func(c *[]entry[K, V], hash uint64) int {
		return cmp.Compare((*c)[0].hash, hash)
	})
	if !found {
		chunk = max(chunk-1, 0)
	}
	entries := *(*t.chunks)[chunk]
	i, _ = slices.BinarySearchFunc(entries, hash, func(e entry[K, V], hash uint64) int { return cmp.Compare(e.hash, hash) })
	for ; i < len(entries) && entries[i].hash == hash; i++ {
		if entries[i].Key == k {
			return chunk, i, true
		}
	}
	return chunk, i, false
}

// Each visits all entries, in no particular order.
func (t table[K, V]) Each(visit func(K, V)) {
	if t.size == 0 {
		return
	}
	for _, entries := range *t.chunks {
		for i := range *entries {
			visit((*entries)[i].Key, (*entries)[i].Value)
		}
	}
}

// With returns a table in which the key has this value.
func (t table[K, V]) With(k K, v V) table[K, V] {
	e := entry[K, V]{Key: k, Value: v, hash: k.Hash()}
	if t.size == 0 {
		return tableOf(split([]entry[K, V]{e}), 1)
	}
	c, i, ok := t.find(e.hash, k)
	entries := *(*t.chunks)[c]
	if ok {
		entries = slices.Clone(entries)
		entries[i] = e
		return t.with(c, entries, t.size)
	}
	return t.with(c, slices.Concat(entries[:i], []entry[K, V]{e}, entries[i:]), t.size+1)
}

// Without returns a table without the key.
func (t table[K, V]) Without(k K) table[K, V] {
	if t.size == 0 {
		return t
	}
	c, i, ok := t.find(k.Hash(), k)
	if !ok {
		return t
	}
	entries := *(*t.chunks)[c]
	return t.with(c, slices.Concat(entries[:i], entries[i+1:]), t.size-1)
}

// with other entries in the place of a chunk.
func (t table[K, V]) with(chunk int, entries []entry[K, V], size int) table[K, V] {
	all := *t.chunks
	if n := len(entries); n > 0 && n <= maxChunk {
		all = slices.Clone(all)
		all[chunk] = &entries
		return tableOf(all, size)
	}
	return tableOf(slices.Concat(all[:chunk], split(entries), all[chunk+1:]), size)
}
