// Package near finds the name that a user may have meant.
package near

import (
	"iter"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
)

// maxComparisons of a name with others keep a typing error among very many names from costing seconds. The names behind are not proposed.
const maxComparisons = 1_000

// Name returns the one of others that a name resembles most, or none. A long name may have two typing errors, and a short one none.
func Name(name string, others iter.Seq[string]) (best string) {
	if len(name) > v1beta1.MaxNameBytes { // It would take long to compare.
		return ""
	}
	fewest, compared := 3, 0
	for _, other := range slices.Sorted(others) {
		most := 1
		switch {
		case len(other) < 4:
			most = 0
		case len(other) >= 10:
			most = 2
		}
		if other == name || max(len(name)-len(other), len(other)-len(name)) > most { // So all the others are not long, either.
			continue
		}
		if compared++; compared > maxComparisons {
			break
		}
		if typos := Typos(name, other); typos <= most && typos < fewest {
			best, fewest = other, typos
		}
	}
	return best
}

// Meant is the end of an error about a name, such as ": did you mean b?". It is empty if the name resembles none of the others.
func Meant(name string, others []string) string {
	if best := Name(name, slices.Values(others)); best != "" {
		return ": did you mean " + best + "?"
	}
	return ""
}

// Annotation is Meant for the key of an annotation with our prefix, which says nothing of the likeness.
func Annotation(key string) string {
	names := make([]string, len(v1beta1.Annotations))
	for i, known := range v1beta1.Annotations {
		names[i] = strings.TrimPrefix(known, v1beta1.AnnotationPrefix)
	}
	if best := Name(strings.TrimPrefix(key, v1beta1.AnnotationPrefix), slices.Values(names)); best != "" {
		return ": did you mean " + v1beta1.AnnotationPrefix + best + "?"
	}
	return ""
}

// Longer returns the shortest of others that begins with a name of 4 bytes or more, such as maxSizeGiB for maxSize, or none.
func Longer(name string, others iter.Seq[string]) (best string) {
	for _, other := range slices.Sorted(others) {
		if len(name) >= 4 && strings.HasPrefix(other, name) && other != name && (best == "" || len(other) < len(best)) {
			best = other
		}
	}
	return best
}

// Typos counts the typing errors between two names in any case.
func Typos(a, b string) int { return edits(strings.ToLower(a), strings.ToLower(b)) }

// edits counts the bytes to insert, remove, replace or swap with their neighbour (the optimal string alignment of Damerau and Levenshtein).
func edits(a, b string) int {
	var last []int // The row before the previous one.
	previous := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			replaced := previous[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, previous[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], last[j-1]+1)
			}
		}
		last, previous = previous, row
	}
	return previous[len(b)]
}
