package race

import (
	"fmt"
	"io"
	"time"
)

// every is how often something that takes long says how far it is.
const every = 3 * time.Second

// during says that something is done, and every few seconds that it still is.
func during(w io.Writer, what string, do func() error) error {
	_, _ = fmt.Fprintf(w, "%s\n", what)
	start := time.Now()
	defer ticking(func() {
		_, _ = fmt.Fprintf(w, "  %s, %s\n", what, time.Since(start).Round(time.Second))
	})()
	return do()
}

// ticking does something every few seconds until it is told to end.
func ticking(do func()) (end func()) {
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
