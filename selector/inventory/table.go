package inventory

import (
	"cmp"
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/rules"
)

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
// third (BenchmarkChange), and a list of them three times as long (BenchmarkNewView). Claims find their classes as fast (BenchmarkWorst).
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
	chunks := *t.chunks
	first, last := 0, len(chunks) // The chunk is one of these.
	for last-first > 1 {
		if middle := (first + last) / 2; (*chunks[middle])[0].hash <= hash {
			first = middle
		} else {
			last = middle
		}
	}
	entries := *chunks[first]
	low, high := 0, len(entries)
	for low < high {
		if middle := (low + high) / 2; entries[middle].hash < hash {
			low = middle + 1
		} else {
			high = middle
		}
	}
	for ; low < len(entries) && entries[low].hash == hash; low++ {
		if entries[low].Key == k {
			return first, low, true
		}
	}
	return first, low, false
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
func (t table[K, V]) With(k K, v V) table[K, V] { return t.Swapped(k, k, v) }

// Swapped returns a table with another key in the place of one. Both have the same hash.
func (t table[K, V]) Swapped(old, k K, v V) table[K, V] {
	e := entry[K, V]{Key: k, Value: v, hash: k.Hash()}
	if t.size == 0 {
		return tableOf(split([]entry[K, V]{e}), 1)
	}
	c, i, ok := t.find(e.hash, old)
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

// Objects are all objects of a RelatedKind. They are immutable, as Classes are.
type Objects struct {
	Kind *rules.Kind
	// Namespaced objects are in the namespace of the claim, unless the ClaimKind says so.
	Namespaced bool

	byName table[className, *expression.Object]
}

// NewObjects of a kind.
func NewObjects(kind *rules.Kind, namespaced bool, objects map[types.NamespacedName]*expression.Object) *Objects {
	byName := make([]entry[className, *expression.Object], 0, len(objects))
	for name, o := range objects {
		byName = append(byName, entry[className, *expression.Object]{Key: nameOf(name.Namespace, name.Name), Value: o})
	}
	return &Objects{kind, namespaced, newTable(byName)}
}

// nameOf an object. The objects of a namespace share its name.
func nameOf(namespace, name string) className { return className{unique.Make(namespace).Value(), name} }

// With returns the objects with one of this name, which replaces the one that there is. It returns o itself if nothing has changed.
func (o *Objects) With(namespace, name string, object *expression.Object) *Objects {
	if old := o.Find(namespace, name); old != nil && old.Same(object) {
		return o
	}
	return &Objects{o.Kind, o.Namespaced, o.byName.With(nameOf(namespace, name), object)}
}

// Without returns the objects without the one of this name.
func (o *Objects) Without(namespace, name string) *Objects {
	if o.Find(namespace, name) == nil {
		return o
	}
	return &Objects{o.Kind, o.Namespaced, o.byName.Without(className{namespace, name})}
}

// Find returns an object, nil if it is not known.
func (o *Objects) Find(namespace, name string) *expression.Object {
	if o == nil {
		return nil
	}
	found, _ := o.byName.Get(className{namespace, name})
	return found
}

// Len is their number.
func (o *Objects) Len() int { return o.byName.Len() }
