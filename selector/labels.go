package selector

import (
	"maps"
	"slices"
	"unique"
)

// Labels of a class, by key. A label that many classes have is held once: they
// are most of what is held of a class. They are what a labels.Selector matches.
type Labels []unique.Handle[label]

type label struct{ key, value string }

// NewLabels of a class.
func NewLabels(set map[string]string) Labels {
	if len(set) == 0 {
		return nil
	}
	l := make(Labels, 0, len(set))
	for _, key := range slices.Sorted(maps.Keys(set)) {
		l = append(l, unique.Make(label{key, set[key]}))
	}
	return l
}

// Lookup the value of a key.
func (l Labels) Lookup(key string) (value string, exists bool) {
	for _, h := range l {
		if label := h.Value(); label.key == key {
			return label.value, true
		}
	}
	return "", false
}

// Has says whether there is a label of that key.
func (l Labels) Has(key string) bool {
	_, exists := l.Lookup(key)
	return exists
}

// Get the value of a key, empty where there is no such label.
func (l Labels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}
