package selector

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// twin is a key that shares its hash with many others.
type twin int

func (k twin) hash() uint64 { return uint64(k%7) << 61 } //nolint:gosec // No key is negative.

// number is a key that shares its first slots with few others, or with many.
type number int

func (k number) hash() uint64 { return mix(uint64(k)) &^ (uint64(k%3) * 0xfff) } //nolint:gosec // No key is negative.

func TestDictIsAMap(t *testing.T) {
	t.Run("Twins", func(t *testing.T) { testDict[twin](t, 60) })
	t.Run("Numbers", func(t *testing.T) { testDict[number](t, 5000) })
}

func testDict[K interface {
	~int
	dictKey
}](t *testing.T, keys int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It has to be reproducible.
	d, model := dict[K, int]{}, map[K]int{}
	for i := range 20 * keys {
		before, size := d, d.size
		k := K(random.IntN(keys))
		// First it grows, and then it shrinks to nothing.
		if random.IntN(20*keys) > i {
			d, model[k] = d.with(k, i), i
		} else {
			d = d.without(k)
			delete(model, k)
		}
		value, ok := d.get(k.hash(), k)
		want, has := model[k]
		require.Equal(t, has, ok, "We should find a key that is there, and no other (%d)", i)
		require.Equal(t, want, value, "We should find what was put there last (%d)", i)
		require.Len(t, model, d.size, "We should count the keys (%d)", i)
		if i%keys == 0 {
			requireDict(t, model, d)
		}
		if before.size != size {
			require.Fail(t, "We should never change a dict.")
		}
	}
	for k := range maps.Clone(model) {
		d = d.without(k)
		delete(model, k)
		requireDict(t, model, d)
	}
	require.Zero(t, d, "We should be left with nothing.")
}

func requireDict[K dictKey](t *testing.T, model map[K]int, d dict[K, int]) {
	t.Helper()
	all := map[K]int{}
	d.each(func(k K, v int) {
		_, twice := all[k]
		require.False(t, twice, "We should visit each key once.")
		all[k] = v
	})
	require.Equal(t, model, all, "We should visit all that is there.")
	requireLean(t, d.root, true)
}

// requireLean asserts that a dict that has shrunk looks as if it had never been larger.
func requireLean[K dictKey, V any](t *testing.T, n *node[K, V], root bool) {
	t.Helper()
	if n == nil {
		return
	}
	require.False(t, !root && len(n.nodes) == 0 && len(n.entries) < 2, "We should leave no node for a single key.")
	for _, child := range n.nodes {
		requireLean(t, child, false)
	}
}

func TestDictLeavesWhatWasBefore(t *testing.T) {
	d := dict[number, int]{}
	for k := range 1000 {
		d = d.with(number(k), k)
	}
	model := map[number]int{}
	d.each(func(k number, v int) { model[k] = v })
	for k := range 1000 {
		changed := d.with(number(k), -1).without(number(k + 1))
		changed = changed.with(number(k+1000), 1)
		require.NotZero(t, changed.size)
	}
	requireDict(t, model, d)
}

func TestDictSwaps(t *testing.T) {
	d, model := dict[twin, int]{}, map[twin]int{}
	for k := range 60 {
		d, model[twin(k)] = d.with(twin(k), k), k
		if k%2 > 0 { // The first of its hash may be an entry, and later ones are in a list.
			d = d.swapped(twin(k), twin(k+70), k+70)
			delete(model, twin(k))
			model[twin(k+70)] = k + 70
		}
		requireDict(t, model, d)
		require.Len(t, model, d.size)
	}
}
