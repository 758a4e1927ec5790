package race

import (
	"context"
	"math/rand/v2"
	"time"
)

// below is any number from 0 that is less than n.
func below(n int) int { return rand.IntN(n) } //nolint:gosec // A race needs chance, and has no secret.

// oneIn is true once in n times.
func oneIn(n int) bool { return below(n) == 0 }

// anyOf them.
func anyOf[T any](them []T) T { return them[below(len(them))] }

// pauseUpTo this long, or until the context ends.
func pauseUpTo(ctx context.Context, longest time.Duration) {
	pause(ctx, rand.N(longest)) //nolint:gosec // A race needs chance, and has no secret.
}
