package main

import "runtime"

// profileContention has every wait for a lock recorded, and every other wait of a
// goroutine, from now on: a sample of them would miss the lock that is rarely
// waited for.
func profileContention() {
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
}
