package main

import "runtime"

// profileContention records every wait of a goroutine, for a lock or anything else,
// from now on. Samples would miss locks with rare waits.
func profileContention() {
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
}
