package cost

import "testing"

// Allocs is how often f allocates, at least, in 1,000 runs. In some of them there is more:
// other goroutines allocate, and the garbage collector and the race detector empty pools.
func Allocs(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 999 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}
