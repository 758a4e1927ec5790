package inventory

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// twin is a key that shares its hash with many others.
type twin int

func (k twin) Hash() uint64 { return uint64(k%7) << 61 } //nolint:gosec // No key is negative.

// number is a key that shares its first slots with few others, or with many.
type number int

func (k number) Hash() uint64 { return uint64(k) * 0x9e3779b97f4a7c15 &^ (uint64(k%3) * 0xfff) } //nolint:gosec // No key is negative.

func TestTable(t *testing.T) {
	t.Run("Twins", func(t *testing.T) { testTable[twin](t, 60) })
	t.Run("Numbers", func(t *testing.T) { testTable[number](t, 5000) })
}

func testTable[K interface {
	~int
	tableKey
}](t *testing.T, keys int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It has to be reproducible.
	d, model := table[K, int]{}, map[K]int{}
	for i := range 20 * keys {
		before, size := d, d.size
		k := K(random.IntN(keys))
		// First it grows, and then it shrinks to nothing.
		if random.IntN(20*keys) > i {
			d, model[k] = d.With(k, i), i
		} else {
			d = d.Without(k)
			delete(model, k)
		}
		value, ok := d.Get(k.Hash(), k)
		want, has := model[k]
		require.Equal(t, has, ok, "We should find a key that is there, and no other (%d)", i)
		require.Equal(t, want, value, "We should find what was put there last (%d)", i)
		require.Len(t, model, d.size, "We should count the keys (%d)", i)
		if i%keys == 0 {
			requireTable(t, model, d)
		}
		if before.size != size {
			require.Fail(t, "We should never change a table.")
		}
	}
	for k := range maps.Clone(model) {
		d = d.Without(k)
		delete(model, k)
		requireTable(t, model, d)
	}
	require.Zero(t, d, "We should be left with nothing.")
}

func requireTable[K tableKey](t *testing.T, model map[K]int, d table[K, int]) {
	t.Helper()
	all := map[K]int{}
	d.Each(func(k K, v int) {
		_, twice := all[k]
		require.False(t, twice, "We should visit each key once.")
		all[k] = v
	})
	require.Equal(t, model, all, "We should visit all that is there.")
}

func TestTableLeavesWhatWasBefore(t *testing.T) {
	d := table[number, int]{}
	for k := range 1000 {
		d = d.With(number(k), k)
	}
	model := map[number]int{}
	d.Each(func(k number, v int) { model[k] = v })
	for k := range 1000 {
		changed := d.With(number(k), -1).Without(number(k + 1))
		changed = changed.With(number(k+1000), 1)
		require.NotZero(t, changed.size)
	}
	requireTable(t, model, d)
}

func TestTableSwaps(t *testing.T) {
	d, model := table[twin, int]{}, map[twin]int{}
	for k := range 60 {
		d, model[twin(k)] = d.With(twin(k), k), k
		if k%2 > 0 { // The first of its hash may be an entry, and later ones are in a list.
			d = d.Swapped(twin(k), twin(k+70), k+70)
			delete(model, twin(k))
			model[twin(k+70)] = k + 70
		}
		requireTable(t, model, d)
		require.Len(t, model, d.size)
	}
}
