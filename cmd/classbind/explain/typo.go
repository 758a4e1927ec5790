package explain

import "strings"

// resembles says whether a name differs from another one only by case or by a typing error.
// Long names may have two.
func resembles(name, other string) bool {
	if name == other {
		return false
	}
	most := 1
	if len(other) >= 8 {
		most = 2
	}
	return distance(strings.ToLower(name), strings.ToLower(other)) <= most
}

// distance counts the bytes to insert, remove, replace or swap with their neighbour, to turn a
// into b. (The optimal string alignment of Damerau and Levenshtein.)
func distance(a, b string) int {
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
