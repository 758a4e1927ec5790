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
)

// query is a selector in a form that matches classes faster. It takes one pass over the labels of a class and compares no texts, so the
// longest selector that is allowed costs little more than a short one.
type query struct {
	// terms must all be met. Before matching, they must be resolved and sorted.
	terms []term
	// values of all terms.
	values []queryValue
	// nothing says that no class can match.
	nothing bool
}

// term is a requirement of a selector.
type term struct {
	key hashed
	// from and to delimit its values among those of the query, for in and notIn, none
	// of them twice. A slice would move all values to the heap.
	from, to int
	asks     relation
	number   int64 // of greater and less
	// derived says that the key is none of a label: see derivation. Filters look at such terms again.
	derived bool

	// handle of the key, as the labels of classes have it.
	handle unique.Handle[string]
	// set of the values, if they are more than maxCompared.
	set map[unique.Handle[label]]struct{}
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

// hashed is a text with its hash.
type hashed struct {
	text text
	hash uint64
}

// queryValue of a term, and the label of the classes that have it.
type queryValue struct {
	hashed

	label unique.Handle[label]
}

// maxCompared is how many values are compared one by one; more are looked up in a set.
const maxCompared = 16

func hash(s string) hashed { return hashed{text(s), text(s).Hash()} }

// queryRoom has space for most queries, on the stack of the caller.
type queryRoom struct {
	terms  [4]term
	values [4]queryValue
}

func newQuery(s labels.Selector, room *queryRoom) (q query) {
	requirements, selectable := s.Requirements()
	q.nothing = !selectable
	q.terms, q.values = room.terms[:0], room.values[:0]
	if n := len(requirements); n > len(room.terms) {
		q.terms, q.values = make([]term, 0, n), make([]queryValue, 0, n) // Mostly, each has one value.
	}
	for i := range requirements {
		r := &requirements[i]
		t := term{key: hash(r.Key())}
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
			t.from = len(q.values)
			for _, v := range slices.Compact(asked) {
				q.values = append(q.values, queryValue{hashed: hash(v)})
			}
			t.to = len(q.values)
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
		t.handle = unique.Make(string(t.key.text))
		values := q.valuesOf(t)
		for j := range values {
			v := &values[j]
			v.label = newLabel(t.handle, string(v.text))
		}
	}
	q.sort()
}

func (q *query) valuesOf(t *term) []queryValue { return q.values[t.from:t.to] }

// resolveTerm by the classes that have its key, and count those with a label that it asks for. It keeps only the values that classes have.
func (q *query) resolveTerm(t *term, of *keyClasses) int {
	t.handle = of.key
	if t.asks != in && t.asks != notIn {
		return of.classes
	}
	count, kept := 0, t.from
	for _, v := range q.valuesOf(t) {
		if has, ok := of.byValue.Get(v.hash, v.text); ok {
			v.label = has.label
			q.values[kept] = v
			kept++
			count += has.classes.Len()
		}
	}
	t.to = kept
	return count
}

// sort the resolved terms in the order of labels.
func (q *query) sort() {
	kept := 0
	for i := range q.terms { // Filters look at the derived ones again.
		if !q.terms[i].derived {
			q.terms[kept] = q.terms[i]
			kept++
		}
	}
	q.terms = q.terms[:kept]
	for i := range q.terms {
		if t := &q.terms[i]; t.to-t.from > maxCompared {
			t.set = make(map[unique.Handle[label]]struct{}, t.to-t.from)
			for _, v := range q.valuesOf(t) {
				t.set[v.label] = struct{}{}
			}
		}
	}
	slices.SortFunc(q.terms, func(a, b term) int { return cmp.Compare(a.key.hash, b.key.hash) })
}

// matches reports whether a class with these labels meets all terms.
func (q *query) matches(l Labels) bool {
	for i := range q.terms {
		t := &q.terms[i]
		l = l.from(t.key.hash)
		if !q.meets(t, l) {
			return false
		}
	}
	return true
}

// meets reports whether the labels meet the term. They begin with those of the hash of its key, if there are any.
func (q *query) meets(t *term, l Labels) bool {
	for i := range l {
		if l[i].hash != t.key.hash {
			break
		}
		if l[i].key == t.handle {
			return q.holds(t, l[i].label)
		}
	}
	return !t.asks.byPresence()
}

// holds reports whether a label with the term's key meets the term.
func (q *query) holds(t *term, h unique.Handle[label]) bool {
	switch t.asks {
	case exists:
		return true
	case absent:
		return false
	case in:
		return q.has(t, h)
	case notIn:
		return !q.has(t, h)
	default:
		n := h.Value().number
		return n != noNumber && (t.asks == greater && n > t.number || t.asks == less && n < t.number)
	}
}

func (q *query) has(t *term, h unique.Handle[label]) bool {
	if t.set != nil {
		_, has := t.set[h]
		return has
	}
	values := q.valuesOf(t)
	for i := range values {
		if values[i].label == h {
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
