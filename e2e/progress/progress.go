// Package progress has what takes long say how far it is.
package progress

import (
	"bytes"
	"fmt"
	"io"
	"sync"
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

// Log is one that is read while it is written.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is the log until now.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
