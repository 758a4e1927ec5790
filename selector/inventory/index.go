package inventory

import (
	"math/bits"
	"slices"
	"unique"

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
	for _, s := range o.Classes {
		if s.excludes(terms) {
			continue
		}
		of := slices.Clip(terms)
		if len(values) > 0 {
			of = append(of, values.terms(o.demand.Fits, s.Kind.ForClaims.Fits)...)
		}
		s.each(of, &o.demand.Reach, namespace, visit)
	}
}

// index finds the positions of classes in the base of a list by their labels. It is immutable.
type index struct {
	// numbers of keys, and of the texts of labels. Number n is that of positions[n], ascending.
	numbers   map[string]int
	positions [][]uint32
	// filter has a bit for the hash of each text. Most kinds have no class for a claim, and then cost no look into their map.
	filter []uint64
}

// textOf a label. It is no key: those are valid UTF-8.
func textOf(key, value string) string { return key + "\xff" + value }

func newIndex(classes []member) *index {
	x, at := &index{numbers: map[string]int{}}, uint32(0)
	number := func(text string) int {
		n, ok := x.numbers[text]
		if !ok {
			n = len(x.positions)
			x.numbers[text], x.positions = n, append(x.positions, nil)
		}
		return n
	}
	known := map[unique.Handle[label]][2]int{} // Handles are compared faster than strings.
	for i := range classes {
		for _, l := range classes[i].labels {
			of, ok := known[l.label]
			if !ok {
				has := l.label.Value()
				of = [2]int{number(has.key.Value()), number(textOf(has.key.Value(), has.value))}
				known[l.label] = of
			}
			for _, n := range of {
				x.positions[n] = append(x.positions[n], at)
			}
		}
		at++
	}
	x.filter = make([]uint64, 1<<bits.Len(uint(len(x.numbers)/4))) // 16 bits or more for each text
	for text := range x.numbers {
		hash := hashOf(text)
		x.filter[hash>>6%uint64(len(x.filter))] |= 1 << (hash % 64)
	}
	return x
}

// term is a requirement of a selector. One claim uses it.
type term struct {
	key      string
	hash     uint64 // of the key
	operator selection.Operator
	values   []string // sorted, none of them twice
	number   int64    // the value, for a comparison
	// selects says that only classes with the key can meet the term, and compares that the index does not know whether they do.
	selects, compares bool

	// texts are those of its labels, or where it has no values the key, each with its hash.
	texts  []string
	hashes []uint64
	// found are the positions of the classes that have one of these, and count is their number.
	found [][]uint32
	count int
	// bits are the same positions as a set, nil where it takes less time to read the labels of classes.
	bits []uint64
}

// newTerms of a selector, false if no class can meet them.
func newTerms(s labels.Selector) (terms []term, selectable bool) {
	requirements, selectable := s.Requirements()
	terms = make([]term, len(requirements))
	for i, r := range requirements {
		terms[i] = newTerm(r.Key(), r.Operator(), r.ValuesUnsorted()...) // They are a copy, and may be repeated.
	}
	return terms, selectable
}

// newTerm takes the values over.
func newTerm(key string, operator selection.Operator, values ...string) term {
	t := term{key: key, hash: hashOf(key), operator: operator, selects: true, texts: []string{key}}
	t.hashes = []uint64{t.hash}
	switch operator {
	case selection.Exists, selection.DoesNotExist:
		t.selects = operator == selection.Exists
		return t
	case selection.GreaterThan, selection.LessThan:
		t.compares, t.number = true, numberOf(values[0])
		return t
	case selection.NotIn, selection.NotEquals:
		t.selects = false
	case selection.In, selection.Equals, selection.DoubleEquals:
	}
	slices.Sort(values)
	t.values, t.texts, t.hashes = slices.Compact(values), t.texts[:0], t.hashes[:0]
	for _, value := range t.values {
		text := textOf(key, value)
		t.texts, t.hashes = append(t.texts, text), append(t.hashes, hashOf(text))
	}
	return t
}

// find the classes in an index.
func (t *term) find(x *index) {
	t.found, t.count, t.bits = t.found[:0], 0, nil
	for _, text := range t.texts {
		if n, ok := x.numbers[text]; ok {
			t.found, t.count = append(t.found, x.positions[n]), t.count+len(x.positions[n])
		}
	}
}

// makeBits of what was found among n classes, of which some are to be asked, or none.
func (t *term) makeBits(n, asked int) {
	if t.compares || t.count >= 32*asked { // To read the labels of a class takes as long as to set about this many bits.
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
	has, ok := l.find(t.key, t.hash)
	if !ok {
		return !t.selects
	}
	switch t.operator {
	case selection.Exists, selection.DoesNotExist:
		return t.selects
	case selection.GreaterThan:
		return has.number != noNumber && t.number != noNumber && has.number > t.number
	case selection.LessThan:
		return has.number != noNumber && has.number < t.number
	default:
		_, isOne := slices.BinarySearch(t.values, has.value)
		return isOne == t.selects
	}
}

// excludes reports whether no class can meet all terms, by the filter, which may not know.
func (s *Classes) excludes(terms []term) bool {
	for i := 0; i < len(terms) && len(s.members.added) == 0; i++ {
		filter, isIn := s.index.filter, !terms[i].selects
		for _, hash := range terms[i].hashes {
			isIn = isIn || filter[hash>>6%uint64(len(filter))]>>(hash%64)&1 == 1
		}
		if !isIn {
			return true
		}
	}
	return false
}

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
	for i := 0; i < len(terms) && fewest > 0; i++ {
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
