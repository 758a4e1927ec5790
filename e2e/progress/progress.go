// Package progress has what takes long say how far it is.
package progress

import (
	"fmt"
	"io"
	"time"
)

// every is how often something that takes long says how far it is.
const every = 3 * time.Second

// During says that something is done, and every few seconds that it still is.
func During(w io.Writer, what string, do func() error) error {
	_, _ = fmt.Fprintf(w, "%s\n", what)
	start := time.Now()
	defer Ticking(func() {
		_, _ = fmt.Fprintf(w, "  %s, %s\n", what, time.Since(start).Round(time.Second))
	})()
	return do()
}

// Ticking does something every few seconds until it is told to end.
func Ticking(do func()) (end func()) {
	tick, ended, done := time.NewTicker(every), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-tick.C:
				do()
			case <-ended:
				return
			}
		}
	}()
	return func() {
		tick.Stop()
		close(ended)
		<-done
	}
}
