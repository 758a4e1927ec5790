// Package progress has what takes long say how far it is.
package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// During reports that something is being done, and again and again that it still is.
func During(w io.Writer, what string, do func() error) error {
	_, _ = fmt.Fprintf(w, "%s\n", what)
	start := time.Now()
	defer Ticking(w, func() {
		_, _ = fmt.Fprintf(w, "  %s, %s\n", what, time.Since(start).Round(time.Second))
	})()
	return do()
}

// every is how often what takes long reports that it goes on: to a person at a terminal often, and to a log seldom.
func every(w io.Writer) time.Duration {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return 10 * time.Second
	}
	return 30 * time.Second
}

// Ticking does something until it has to end, as often as w wants to be written to.
func Ticking(w io.Writer, do func()) (end func()) {
	tick, ended, done := time.NewTicker(every(w)), make(chan struct{}), make(chan struct{})
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
