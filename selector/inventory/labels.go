package inventory

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"unique"

	"github.com/classbind/classbind/api/v1beta1"
)

// Labels of a class, sorted by the hashes of their keys, so that a query finds its
// keys in one pass over adjacent numbers: authors may give many classes many labels,
// and to follow a pointer for each would take most of the time. A label that many
// classes have is held once, because labels are most of what is held of a class.
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

// from returns the labels whose hash is at least this one. It looks for near ones step
// by step, which the processor predicts well.
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
