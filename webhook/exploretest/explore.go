// Package exploretest runs every interleaving of a few requests on a model of an API server.
package exploretest

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Requests returns how many requests run at once: three, or two in short mode.
func Requests(t *testing.T) int {
	t.Helper()
	usual := "3"
	if testing.Short() {
		usual = "2"
	}
	n, err := strconv.Atoi(cmp.Or(os.Getenv("REQUESTS"), usual))
	require.NoError(t, err, "REQUESTS must be a number of requests.")
	return n
}

// Combinations visits all choices of n scripts of a pool, in which each may be chosen several times if they repeat.
func Combinations[S any](pool []S, n int, repeat bool, visit func([]S)) {
	var rest func(from int, chosen []S)
	rest = func(from int, chosen []S) {
		if len(chosen) == n {
			visit(chosen)
			return
		}
		for i := from; i < len(pool); i++ {
			next := i + 1
			if repeat {
				next = i
			}
			rest(next, append(slices.Clip(chosen), pool[i]))
		}
	}
	rest(0, nil)
}

// Key has everything that distinguishes states.
type Key []byte

// Text is added.
func (k *Key) Text(all ...string) {
	for _, text := range all {
		*k = append(append(*k, text...), ' ')
	}
}

// Number is added.
func (k *Key) Number(all ...int) {
	for _, n := range all {
		*k = append(strconv.AppendInt(*k, int64(n), 36), ' ')
	}
}

// Flag is added.
func (k *Key) Flag(all ...bool) {
	for i, f := range all {
		if f {
			*k = append(*k, byte('A'+i))
		}
	}
	*k = append(*k, ' ')
}

// Run visits every state that follows from a start, once, until a visit returns false. A visit pushes the next states. It returns how many
// states there are.
func Run[W any](start W, key func(*W, *Key), visit func(w *W, push func(W)) bool) int {
	seen, stack := map[string]struct{}{}, []W{start}
	push := func(w W) { stack = append(stack, w) }
	var k Key
	for len(stack) > 0 {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		k = k[:0]
		key(&w, &k)
		if _, ok := seen[string(k)]; ok {
			continue
		}
		seen[string(k)] = struct{}{}
		if !visit(&w, push) {
			break
		}
	}
	return len(seen)
}
