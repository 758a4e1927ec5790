package cost

import (
	"runtime"
	"testing"
)

// Allocs is how often f allocates, at least, in 1,000 runs. In some of them there is more:
// other goroutines allocate, and the garbage collector and the race detector empty pools.
func Allocs(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 999 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

// Allocated is how many bytes a function allocates with empty sync.Pools: the least of several runs, because others allocate, too.
func Allocated(f func()) uint64 {
	least := ^uint64(0)
	var before, after runtime.MemStats
	for range 3 {
		for range 2 { // The first puts the pools aside, the second empties them.
			runtime.GC()
		}
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}
