package main

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	// lineDelay is how long a line waits for others, to be written together: with few claims, waking up for
	// each line is a large part of a claim's cost. A crash loses the lines of that time.
	lineDelay = 100 * time.Millisecond
	// maxWaitingBytes has room for some ten thousand decisions. As many bytes may be being written.
	maxWaitingBytes = 4 << 20
	// maxKeptBytes of memory are kept for the next lines, as much as a pipe takes.
	maxKeptBytes = 64 << 10
)

// logWriter writes lines in the background, so that no claim waits for the reader of the log. It drops lines
// that come faster than they are read. zap's BufferedWriteSyncer is not used, because it holds a lock while it
// writes: every claim would wait for a slow reader.
type logWriter struct {
	to      io.Writer
	dropped atomic.Int64 // lines since the start
	wake    chan struct{}
	closed  atomic.Bool
	done    chan struct{}

	mu      sync.Mutex
	waiting []byte
	lines   int64 // in waiting

	writing sync.Mutex // held by flush
	spare   []byte
}

// newLogWriter returns a writer that keeps its lines until it runs.
func newLogWriter(to io.Writer) *logWriter {
	return &logWriter{to: to, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// RegisterMetrics registers the counter of dropped lines.
func (w *logWriter) RegisterMetrics() error {
	return metrics.Registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "classbind_log_lines_dropped_total",
		Help: "Lines of the log that were dropped, because they could not be written, or not as fast as they came.",
	}, func() float64 { return float64(w.dropped.Load()) }))
}

// Write takes a line. It does not wait for the reader while the writer is open, and never fails.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	first, fits := len(w.waiting) == 0, len(w.waiting)+len(line) <= maxWaitingBytes
	if fits {
		w.waiting = append(w.waiting, line...)
		w.lines++
	}
	w.mu.Unlock()
	switch {
	case !fits:
		w.dropped.Add(1)
	case first:
		w.wakeUp()
	}
	if w.closed.Load() {
		w.flush()
	}
	return len(line), nil
}

func (w *logWriter) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // It is awake.
	}
}

// run writes lines until the writer is closed, and logs how many were dropped.
func (w *logWriter) run(log logr.Logger) {
	defer close(w.done)
	reported := int64(0)
	for range w.wake {
		if w.closed.Load() {
			return
		}
		time.Sleep(lineDelay)
		w.flush()
		if dropped := w.dropped.Load(); dropped > reported {
			log.Info("Dropped log lines that could not be written fast enough", "lines", dropped-reported)
			reported = dropped
		}
	}
}

// close writes the waiting lines. After it, each line is written at once.
func (w *logWriter) close() {
	w.closed.Store(true)
	w.wakeUp()
	<-w.done
	w.flush()
}

func (w *logWriter) flush() {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.mu.Lock()
	text, lines := w.waiting, w.lines
	w.waiting, w.lines = w.spare[:0], 0
	w.mu.Unlock()
	w.spare = nil
	if cap(text) <= maxKeptBytes {
		w.spare = text
	}
	if len(text) == 0 {
		return
	}
	if _, err := w.to.Write(text); err != nil {
		w.dropped.Add(lines) // Some may have been written.
	}
}
