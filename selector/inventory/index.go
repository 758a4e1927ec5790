package inventory

import (
	"iter"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/classbind/classbind/selector/claim"
)

// Each visits the classes of this namespace's offer that a claim asks for, with the values of its equality terms.
func (o *Offer) Each(namespace string, asked labels.Selector, values Values, visit func(*Class)) {
	terms, selectable := newTerms(asked)
	if !selectable {
		return
	}
	for s := range o.sieve.having(o.Classes, terms) {
		of := slices.Clip(terms)
		if len(values) > 0 {
			of = append(of, values.terms(o.demand.rules.Fits, s.Kind.ForClaims.Fits)...)
		}
		s.each(of, &o.demand.Reach, namespace, visit)
	}
}

// index finds the positions of classes in the base of a list by the hashes of their labels and keys. It is immutable. Two that have the
// same hash would be taken for one: of a million labels, two have it in one of thirty million processes.
type index struct {
	entries []entry
	// slots are a hash table of the entries, which counts them from 1. A map has its entries in more places of the memory.
	slots []uint32
}

// entry is a label or a key, and the positions of the classes that have it, ascending.
type entry struct {
	hash      uint64
	positions []uint32
}

// find the positions of the classes that have a label or a key, none in a slot that is free if there are none.
func (x *index) find(hash uint64) (positions []uint32, free *uint32) {
	for at := hash; ; at++ {
		slot := &x.slots[at&uint64(len(x.slots)-1)] //nolint:gosec // A length is not negative.
		if *slot == 0 {
			return nil, slot
		}
		if e := &x.entries[*slot-1]; e.hash == hash {
			return e.positions, nil
		}
	}
}

func newIndex(classes []member) *index {
	x, numbers := &index{}, map[uint64]int{}
	number := func(hash uint64) int {
		n, ok := numbers[hash]
		if !ok {
			n = len(x.entries)
			numbers[hash], x.entries = n, append(x.entries, entry{hash: hash})
		}
		return n
	}
	for at := range classes {
		for _, l := range classes[at].labels {
			for _, n := range [...]int{number(l.key), number(l.hash)} {
				x.entries[n].positions = append(x.entries[n].positions, uint32(at))
			}
		}
	}
	x.slots = make([]uint32, 2<<bits.Len(uint(len(x.entries))))
	for n := range x.entries {
		_, free := x.find(x.entries[n].hash)
		*free = uint32(n + 1)
	}
	return x
}

// term is a requirement of a selector. One claim uses it.
type term struct {
	key      uint64 // its hash
	operator selection.Operator
	// hashes of its labels, or where it has no values of the key, ascending, none of them twice.
	hashes []uint64
	number int64 // the value, for a comparison
	// selects reports whether only classes with the key can meet the term, and compares whether the index leaves open if they do.
	selects, compares bool

	// found are the positions of the classes that have one of these, and count is their number.
	found [][]uint32
	one   [1][]uint32 // most often enough for these
	count int
	// bits are the same positions as a set, nil where it takes less time to read the labels of classes.
	bits []uint64
}

// newTerms of a selector, false if no class can meet them.
func newTerms(s labels.Selector) (terms []term, selectable bool) {
	requirements, selectable := s.Requirements()
	terms = make([]term, len(requirements))
	for i, r := range requirements {
		terms[i] = newTerm(r.Key(), r.Operator(), r.ValuesUnsorted()...)
	}
	return terms, selectable
}

func newTerm(key string, operator selection.Operator, values ...string) term {
	t := term{key: hashOf(key), operator: operator, hashes: make([]uint64, 0, max(len(values), 1)), selects: true}
	switch operator {
	case selection.Exists, selection.DoesNotExist:
		t.selects, t.hashes = operator == selection.Exists, append(t.hashes, t.key)
	case selection.GreaterThan, selection.LessThan:
		t.compares, t.number, t.hashes = true, numberOf(values[0]), append(t.hashes, t.key)
	default:
		t.selects = operator != selection.NotIn && operator != selection.NotEquals
		for _, value := range values {
			t.hashes = append(t.hashes, labelHash(t.key, value))
		}
		slices.Sort(t.hashes)
		t.hashes = slices.Compact(t.hashes)
	}
	return t
}

// find the classes in an index.
func (t *term) find(x *index) {
	t.found, t.count = t.one[:0], 0
	for _, hash := range t.hashes {
		if positions, _ := x.find(hash); positions != nil {
			t.found, t.count = append(t.found, positions), t.count+len(positions)
		}
	}
}

// makeBits of what was found among n classes, some or none of them to be asked.
func (t *term) makeBits(n, asked int) {
	t.bits = nil
	if t.compares || asked <= few || t.count >= 32*asked { // To read the labels of a class takes as long as to set about this many bits.
		return
	}
	t.bits = make([]uint64, n/64+1)
	for _, positions := range t.found {
		for _, at := range positions {
			t.bits[at/64] |= 1 << (at % 64)
		}
	}
}

// isMet by the class with these labels at a position of the index, negative for one that is not in it.
func (t *term) isMet(at int, l Labels) bool {
	if t.bits != nil && at >= 0 {
		return (t.bits[at/64]>>(at%64)&1 == 1) == t.selects
	}
	for i := range l {
		if l[i].key != t.key {
			continue
		}
		switch t.operator {
		case selection.Exists, selection.DoesNotExist:
			return t.selects
		case selection.GreaterThan:
			number := l[i].label.Value().number
			return number != noNumber && t.number != noNumber && number > t.number
		case selection.LessThan:
			number := l[i].label.Value().number
			return number != noNumber && number < t.number
		default:
			_, isOne := slices.BinarySearch(t.hashes, l[i].hash)
			return isOne == t.selects
		}
	}
	return !t.selects
}

// few classes are asked for their labels in less time than a term is looked up.
const few = 4

// plan where to look for the classes that the claims of a namespace are offered: at what the term best selects, or where that is negative
// at the spans of these namespaces, or of all, in the base. That many classes are fewest.
func (s *Classes) plan(terms []term, reach *claim.Reach, namespace string) (names []string, all bool, spans [][2]int, best, fewest int) {
	all, best, fewest = true, -1, len(s.members.base)
	if reach != nil && s.Kind.Namespaced {
		if names, all = reach.ClassNamespaces(namespace); !all {
			fewest = 0
		}
		for _, namespace := range names {
			from, to := s.members.span(namespace)
			spans, fewest = append(spans, [2]int{from, to}), fewest+to-from
		}
	}
	for i := 0; i < len(terms) && fewest > few; i++ {
		t := &terms[i]
		if t.find(s.index); t.selects && t.count < fewest {
			best, fewest = i, t.count
		}
	}
	return names, all, spans, best, fewest
}

// each visits the classes that the claims of a namespace are offered, or all with a nil reach, and that meet all terms.
func (s *Classes) each(terms []term, reach *claim.Reach, namespace string, visit func(*Class)) {
	base, gone := s.members.base, s.members.gone
	namespaces, all, spans, best, fewest := s.plan(terms, reach, namespace)
	for i := range terms {
		if i != best {
			terms[i].makeBits(len(base), fewest)
		}
	}
	look := func(at int, c *member) {
		for i := range terms {
			if isKnown := i == best && at >= 0 && !terms[i].compares; !isKnown && !terms[i].isMet(at, c.labels) {
				return
			}
		}
		if _, isGone := slices.BinarySearch(gone, at); !isGone && (all || slices.Contains(namespaces, c.Namespace)) {
			visit(c.Class)
		}
	}
	if best >= 0 {
		for _, positions := range terms[best].found {
			for _, at := range positions {
				look(int(at), &base[at])
			}
		}
	} else {
		if all { // Not in plan: there it would take memory for each class kind.
			spans = [][2]int{{0, len(base)}}
		}
		for _, span := range spans {
			for at := span[0]; at < span[1]; at++ {
				look(at, &base[at])
			}
		}
	}
	for i := range s.members.added {
		look(-1, &s.members.added[i])
	}
}

// sieve shows which kinds may have classes with a label. Most of many have none, and then cost a claim no look into their index.
type sieve struct {
	// rows have a bit for each kind. A label is in that of its hash modulo their number, which may be that of others, too.
	rows  []uint64
	words int // of a row
	// changed are the kinds that have classes which are not in their index.
	changed []uint64
}

// maxRows is enough for kinds with 2,000 labels. A kind with many more is rarely left out, and pays for its own look.
const maxRows = 1 << 14

func newSieve(classes []*Classes) sieve {
	rows, words := 0, (len(classes)+63)/64
	for _, s := range classes {
		rows = max(rows, rowsFor(s))
	}
	v := sieve{make([]uint64, words*rows), words, make([]uint64, words)}
	for place, s := range classes {
		v.add(place, s)
	}
	return v
}

func rowsFor(s *Classes) int { return min(8<<bits.Len(uint(len(s.index.entries))), maxRows) }

// add the bits of the classes at a place.
func (v *sieve) add(place int, s *Classes) {
	for n := range s.index.entries {
		v.row(s.index.entries[n].hash)[place/64] |= 1 << (place % 64)
	}
	if len(s.members.added) > 0 {
		v.changed[place/64] |= 1 << (place % 64)
	}
}

// changedAt is the sieve after a change of the classes at a place. It takes no time for other kinds, but for the few times at which this
// one needs more rows: none are given back.
func (v *sieve) changedAt(place int, before *Classes, classes []*Classes) sieve {
	next := sieve{v.rows, v.words, slices.Clone(v.changed)}
	switch now := classes[place]; {
	case before.index == now.index:
		next.changed[place/64] |= 1 << (place % 64)
	case rowsFor(now)*v.words > len(v.rows):
		return newSieve(classes)
	default:
		next.rows = slices.Clone(v.rows)
		for at := place / 64; at < len(next.rows); at += v.words {
			next.rows[at] &^= 1 << (place % 64)
		}
		next.changed[place/64] &^= 1 << (place % 64)
		next.add(place, now)
	}
	return next
}

func (v *sieve) row(hash uint64) []uint64 {
	from := int(hash%uint64(len(v.rows)/v.words)) * v.words //nolint:gosec // A length is not negative.
	return v.rows[from : from+v.words]
}

// having are the classes of each kind that may have some which meet all terms.
func (v *sieve) having(classes []*Classes, terms []term) iter.Seq[*Classes] {
	return func(yield func(*Classes) bool) {
		for word := range v.words {
			left := ^uint64(0)
			for i := range terms {
				left &= terms[i].kinds(v, word) | v.changed[word]
			}
			for ; left != 0; left &= left - 1 {
				if at := word*64 + bits.TrailingZeros64(left); at >= len(classes) || !yield(classes[at]) {
					return
				}
			}
		}
	}
}

// kinds that may have classes which meet the term, as the bits of a word.
func (t *term) kinds(v *sieve, word int) (kinds uint64) {
	if !t.selects {
		return ^uint64(0)
	}
	for _, hash := range t.hashes {
		kinds |= v.row(hash)[word]
	}
	return kinds
}
