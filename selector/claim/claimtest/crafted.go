// Package claimtest plays authors who make up names, for the tests of tables.
package claimtest

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
)

// Crafted returns 4096 names with the same XXH64 after a prefix, as anybody can make them up. XXH64 reads 32 bytes at a time, eight into
// each of four sums. After a prefix, a name has room for three pairs of 32 bytes: for each sum there are two ways to write its sixteen
// bytes of a pair, so that the second undoes what the first changed.
func Crafted(t *testing.T, prefix string) []string {
	t.Helper()
	const stripe, prime1, prime2 = 32, 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
	round := func(sum, eight uint64) uint64 {
		sum += eight * prime2
		return (sum<<31 | sum>>33) * prime1
	}
	inverse := uint64(1) // of prime2
	for range 6 {
		inverse *= 2 - prime2*inverse
	}
	begin := []byte(prefix)
	for len(begin)%stripe > 0 {
		begin = append(begin, 'a')
	}
	one, two := uint64(prime1), uint64(prime2)
	sums := [4]uint64{one + two, two, 0, -one}
	for i := 0; i < len(begin); i += 8 {
		sums[i/8%4] = round(sums[i/8%4], binary.LittleEndian.Uint64(begin[i:]))
	}
	names := [][]byte{begin[len(prefix):]}
	for range 3 {
		var ways [4][2][2][8]byte // of each sum, the two ways to write the first and the second eight bytes
		for i, sum := range sums {
			ways[i] = waysOf(t, func(a, b uint64) uint64 { return (round(sum, a) - round(sum, b)) * inverse })
			for _, eight := range ways[i][0] {
				sums[i] = round(sums[i], binary.LittleEndian.Uint64(eight[:]))
			}
		}
		var longer [][]byte
		for _, name := range names {
			for choice := range 16 {
				next := append([]byte(nil), name...)
				for half := range 2 {
					for i := range ways {
						next = append(next, ways[i][choice>>i&1][half][:]...)
					}
				}
				longer = append(longer, next)
			}
		}
		names = longer
	}
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
		require.Equal(t, xxhash.Sum64String(prefix+texts[0]), xxhash.Sum64String(prefix+texts[i]))
	}
	require.LessOrEqual(t, len(texts[0]), 253)
	return texts
}

// waysOf returns two pairs of eight bytes each: the second of a pair undoes what the
// first changes. For that it has to be greater by what by returns.
func waysOf(t *testing.T, by func(a, b uint64) uint64) (ways [2][2][8]byte) {
	t.Helper()
	copy(ways[0][0][:], "aaaaaaaa")
	for i := range 1_000_000 {
		copy(ways[1][0][:], fmt.Sprintf("a%07d", i))
		d := by(binary.LittleEndian.Uint64(ways[0][0][:]), binary.LittleEndian.Uint64(ways[1][0][:]))
		if apart(d, 0, 0, &ways[0][1], &ways[1][1]) {
			return ways
		}
	}
	require.Fail(t, "There is always a way.")
	return ways
}

// apart writes two texts, from a byte on. As a number, the second is greater by d.
func apart(d uint64, from int, carry uint64, low, high *[8]byte) bool {
	const characters = "abcdefghijklmnopqrstuvwxyz0123456789"
	if from == 8 {
		return true
	}
	tried := [2]bool{} // by the carry
	for _, c := range []byte(characters) {
		sum := uint64(c) + d>>(8*from)&0xff + carry
		h := byte(sum) //nolint:gosec // The rest is carried.
		if tried[sum>>8] || (h < 'a' || h > 'z') && (h < '0' || h > '9') {
			continue
		}
		tried[sum>>8] = true
		low[from], high[from] = c, h
		if apart(d, from+1, sum>>8, low, high) {
			return true
		}
	}
	return false
}
