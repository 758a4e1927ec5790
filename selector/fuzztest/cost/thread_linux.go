package cost

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of this thread, without that of others on a busy machine.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // There is such a clock since Linux 2.6.12.
	}
	return time.Duration(t.Nano())
}
