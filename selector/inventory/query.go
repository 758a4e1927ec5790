package inventory

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/rules"
)

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

// Labels of a class, sorted by the hashes of their keys, so that a query finds its keys in one pass over adjacent numbers: authors may give
// many classes many labels, and to follow a pointer for each would take most of the time. A label that many classes have is held once,
// because labels are most of what is held of a class.
type Labels []keyed

// keyed is a label with its key, and the hash of the key.
type keyed struct {
	hash  uint64
	key   unique.Handle[string]
	label unique.Handle[label]
}

// label of a class, with its value as a number.
type label struct {
	key    unique.Handle[string]
	value  string
	number int64
}

// noNumber stands for a value that is not a number. No label value begins with a minus.
const noNumber = math.MinInt64

func newLabel(key unique.Handle[string], value string) unique.Handle[label] {
	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		number = noNumber
	}
	return unique.Make(label{key, value, number})
}

// Set has the labels by their keys.
func (l Labels) Set() map[string]string {
	set := make(map[string]string, len(l))
	for _, k := range l {
		set[k.key.Value()] = k.label.Value().value
	}
	return set
}

// NewLabels of a class.
func NewLabels(set map[string]string) Labels {
	if len(set) == 0 {
		return nil
	}
	l := make(Labels, 0, len(set))
	for key, value := range set {
		h := unique.Make(key)
		l = append(l, keyed{text(key).Hash(), h, newLabel(h, value)})
	}
	slices.SortFunc(l, compareKeyed)
	return l
}

// compareKeyed is the order of Labels.
func compareKeyed(a, b keyed) int {
	if order := cmp.Compare(a.hash, b.hash); order != 0 || a.key == b.key {
		return order
	}
	return cmp.Compare(a.key.Value(), b.key.Value())
}

// labelsFit reports whether labels are within the limits of a class.
func labelsFit(set map[string]string) bool {
	if len(set) > v1beta1.MaxClassLabels {
		return false
	}
	size := 0
	for key, value := range set {
		size += len(key) + len(value)
	}
	return size <= v1beta1.MaxClassLabelBytes
}

// from returns the labels whose hash is at least this one. It looks for near ones step by step, which the processor predicts well.
func (l Labels) from(hash uint64) Labels {
	const near = 16
	for i := range min(len(l), near) {
		if l[i].hash >= hash {
			return l[i:]
		}
	}
	if len(l) <= near {
		return nil
	}
	i, _ := slices.BinarySearchFunc(l[near:], hash, func(k keyed, hash uint64) int { return cmp.Compare(k.hash, hash) })
	return l[near+i:]
}

// Lookup the value of a key.
func (l Labels) Lookup(key string) (value string, exists bool) {
	hash := text(key).Hash()
	for _, k := range l.from(hash) {
		if k.hash != hash {
			break
		}
		if k.key.Value() == key {
			return k.label.Value().value, true
		}
	}
	return "", false
}

// Has reports whether there is a label of that key.
func (l Labels) Has(key string) bool {
	_, exists := l.Lookup(key)
	return exists
}

// Get the value of a key, empty if there is no such label.
func (l Labels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}
