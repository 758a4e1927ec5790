package inventory

import (
	"cmp"
	"math/bits"
	"slices"
)

// trieKey is a key of a trie.
type trieKey interface {
	comparable
	// Hash must be one that authors of keys cannot foresee. Otherwise they could have all keys
	// share a node.
	Hash() uint64
}

// trie is an immutable map, which readers use without a lock while a writer makes the next: a hash array
// mapped trie (Bagwell 2001, "Ideal Hash Trees") with 64 slots per node. A change makes a copy that shares
// all but the path to the change, so it takes time logarithmic in the size. The zero value is empty.
//
// Measured against two libraries, with 100,000 entries of 30-byte keys (2 cores, one
// run):
//
//	                              get      replace   garbage   heap per entry
//	trie                          0.12 µs  1.0 µs    1.6 kB     38 B
//	hashicorp/go-immutable-radix  0.14 µs  3.2 µs    3.0 kB    420 B
//	tidwall/btree, by Copy        0.21 µs  3.3 µs    5.5 kB     47 B
//
// On a slower machine, a trie took 0.14 and 3.6 µs and 1.6 kB, benbjohnson/immutable 0.30 and 3.6 µs and
// 1.9 kB, and 1,024 maps, one of them copied by a change, 0.05 and 14 µs and 13 kB.
type trie[K trieKey, V any] struct {
	root *node[K, V]
	size int
}

// node has entries for slots with one key, and nodes for slots with several.
type node[K trieKey, V any] struct {
	entryAt, nodeAt slots
	entries         []entry[K, V]
	nodes           []*node[K, V]
}

// entry of a Map. The value is first: an empty struct as the last field takes space.
type entry[K trieKey, V any] struct {
	Value V
	Key   K
}

// slots is a set of a node's slots, a bit each.
type slots uint64

const (
	slotBits = 6
	// bottom is the depth at which no bit of the hash is left to tell keys apart. A
	// node there is a list of entries.
	bottom = (64 + slotBits - 1) / slotBits
)

// slot of a hash at a depth. It takes the highest bits first, so that in the order
// of their hashes the keys of one node are together.
func slot(hash uint64, depth int) slots { return 1 << (hash << (slotBits * depth) >> (64 - slotBits)) }

// before counts the slots of the set that come before p.
func (s slots) before(p slots) int { return bits.OnesCount64(uint64(s & (p - 1))) }

// newTrie makes a Map of entries with different keys. It takes the slice over, and
// is quick if that is in the order of the hashes.
func newTrie[K trieKey, V any](entries []entry[K, V]) trie[K, V] {
	if len(entries) == 0 {
		return trie[K, V]{}
	}
	slices.SortFunc(entries, func(a, b entry[K, V]) int { return cmp.Compare(a.Key.Hash(), b.Key.Hash()) })
	return trie[K, V]{newNode(0, entries), len(entries)}
}

func newNode[K trieKey, V any](depth int, entries []entry[K, V]) *node[K, V] {
	if depth == bottom {
		return &node[K, V]{entries: slices.Clone(entries)}
	}
	n := &node[K, V]{}
	for len(entries) > 0 {
		p := slot(entries[0].Key.Hash(), depth)
		together := 1
		for together < len(entries) && slot(entries[together].Key.Hash(), depth) == p {
			together++
		}
		if together == 1 {
			n.entryAt, n.entries = n.entryAt|p, append(n.entries, entries[0])
		} else {
			n.nodeAt, n.nodes = n.nodeAt|p, append(n.nodes, newNode(depth+1, entries[:together]))
		}
		entries = entries[together:]
	}
	n.entries, n.nodes = slices.Clone(n.entries), slices.Clone(n.nodes) // Without room to grow.
	return n
}

// Len counts the keys.
func (m trie[K, V]) Len() int { return m.size }

// Get the value of a key whose hash is known.
func (m trie[K, V]) Get(hash uint64, k K) (value V, ok bool) {
	n := m.root
	for depth := 0; n != nil && depth < bottom; depth++ {
		p := slot(hash, depth)
		if e := n.entry(p); e != nil {
			if e.Key == k {
				return e.Value, true
			}
			return value, false
		}
		n = n.node(p)
	}
	if n != nil {
		if i := n.find(k); i >= 0 {
			return n.entries[i].Value, true
		}
	}
	return value, false
}

// Each visits all entries, in no particular order.
func (m trie[K, V]) Each(visit func(K, V)) { m.root.each(visit) }

// With returns a Map in which the key has this value.
func (m trie[K, V]) With(k K, v V) trie[K, V] {
	n := m.root
	if n == nil {
		n = &node[K, V]{}
	}
	root, added := n.with(0, k.Hash(), entry[K, V]{Key: k, Value: v})
	return trie[K, V]{root, m.size + added}
}

// Swapped returns a Map with another key in the place of one that it has. Both have the
// same hash.
func (m trie[K, V]) Swapped(k, other K, v V) trie[K, V] {
	return trie[K, V]{m.root.swapped(0, k.Hash(), k, entry[K, V]{Key: other, Value: v}), m.size}
}

// Without returns a Map without the key.
func (m trie[K, V]) Without(k K) trie[K, V] {
	if m.root == nil {
		return m
	}
	root, removed := m.root.without(0, k.Hash(), k)
	if m.size == removed {
		return trie[K, V]{}
	}
	return trie[K, V]{root, m.size - removed}
}

func (n *node[K, V]) each(visit func(K, V)) {
	if n == nil {
		return
	}
	for i := range n.entries {
		visit(n.entries[i].Key, n.entries[i].Value)
	}
	for _, child := range n.nodes {
		child.each(visit)
	}
}

// entry at a slot, nil if there is none.
func (n *node[K, V]) entry(p slots) *entry[K, V] {
	if n.entryAt&p == 0 {
		return nil
	}
	return &n.entries[n.entryAt.before(p)]
}

// node at a slot, nil if there is none.
func (n *node[K, V]) node(p slots) *node[K, V] {
	if n.nodeAt&p == 0 {
		return nil
	}
	return n.nodes[n.nodeAt.before(p)]
}

func (n *node[K, V]) find(k K) int {
	return slices.IndexFunc(n.entries, func(e entry[K, V]) bool { return e.Key == k })
}

func (n *node[K, V]) with(depth int, hash uint64, e entry[K, V]) (changed *node[K, V], added int) {
	if depth == bottom {
		if i := n.find(e.Key); i >= 0 {
			return &node[K, V]{entries: replaced(n.entries, i, e)}, 0
		}
		return &node[K, V]{entries: inserted(n.entries, len(n.entries), e)}, 1
	}
	p := slot(hash, depth)
	i, j := n.entryAt.before(p), n.nodeAt.before(p)
	switch {
	case n.nodeAt&p != 0:
		child, added := n.nodes[j].with(depth+1, hash, e)
		return &node[K, V]{n.entryAt, n.nodeAt, n.entries, replaced(n.nodes, j, child)}, added
	case n.entryAt&p == 0:
		return &node[K, V]{n.entryAt | p, n.nodeAt, inserted(n.entries, i, e), n.nodes}, 1
	case n.entries[i].Key == e.Key:
		return &node[K, V]{n.entryAt, n.nodeAt, replaced(n.entries, i, e), n.nodes}, 0
	}
	other := n.entries[i]
	child, _ := (&node[K, V]{}).with(depth+1, other.Key.Hash(), other)
	child, _ = child.with(depth+1, hash, e)
	return &node[K, V]{n.entryAt &^ p, n.nodeAt | p, removed(n.entries, i), inserted(n.nodes, j, child)}, 1
}

func (n *node[K, V]) swapped(depth int, hash uint64, k K, e entry[K, V]) *node[K, V] {
	if depth == bottom {
		return &node[K, V]{entries: replaced(n.entries, n.find(k), e)}
	}
	p := slot(hash, depth)
	if n.entryAt&p != 0 {
		return &node[K, V]{n.entryAt, n.nodeAt, replaced(n.entries, n.entryAt.before(p), e), n.nodes}
	}
	j := n.nodeAt.before(p)
	return &node[K, V]{n.entryAt, n.nodeAt, n.entries, replaced(n.nodes, j, n.nodes[j].swapped(depth+1, hash, k, e))}
}

// without returns the node without the key. Every node but the root keeps two entries
// at least.
func (n *node[K, V]) without(depth int, hash uint64, k K) (changed *node[K, V], count int) {
	if depth == bottom {
		if i := n.find(k); i >= 0 {
			return &node[K, V]{entries: removed(n.entries, i)}, 1
		}
		return n, 0
	}
	p := slot(hash, depth)
	i, j := n.entryAt.before(p), n.nodeAt.before(p)
	switch {
	case n.entryAt&p != 0 && n.entries[i].Key == k:
		return &node[K, V]{n.entryAt &^ p, n.nodeAt, removed(n.entries, i), n.nodes}, 1
	case n.nodeAt&p == 0:
		return n, 0
	}
	child, count := n.nodes[j].without(depth+1, hash, k)
	switch {
	case count == 0:
		return n, 0
	case len(child.entries) == 1 && len(child.nodes) == 0:
		return &node[K, V]{n.entryAt | p, n.nodeAt &^ p, inserted(n.entries, i, child.entries[0]), removed(n.nodes, j)}, 1
	}
	return &node[K, V]{n.entryAt, n.nodeAt, n.entries, replaced(n.nodes, j, child)}, 1
}

// replaced, inserted and removed return a changed copy of the slice.
func replaced[T any](s []T, i int, v T) []T {
	s = slices.Clone(s)
	s[i] = v
	return s
}

func inserted[T any](s []T, i int, v T) []T {
	longer := make([]T, len(s)+1)
	copy(longer, s[:i])
	longer[i] = v
	copy(longer[i+1:], s[i:])
	return longer
}

func removed[T any](s []T, i int) []T {
	if len(s) == 1 {
		return nil
	}
	shorter := make([]T, len(s)-1)
	copy(shorter, s[:i])
	copy(shorter[i:], s[i+1:])
	return shorter
}
