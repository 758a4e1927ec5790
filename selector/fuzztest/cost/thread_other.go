//go:build !linux

package cost

import "time"

var start = time.Now()

// threadTime is as near as the standard library comes to the CPU time of a thread.
func threadTime() time.Duration { return time.Since(start) }
