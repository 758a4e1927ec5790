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
	// lineDelay is how long a line waits for others, to be written together: with few
	// claims, waking up for each line is a large part of a claim's cost. A crash loses
	// the lines of that time.
	lineDelay = 100 * time.Millisecond
	// maxWaitingBytes is room for some twenty thousand decisions.
	maxWaitingBytes = 8 << 20
	// writeChunk is about how much is written at once: as much as a pipe takes.
	writeChunk = 64 << 10
)

// logWriter writes lines in the background, so that no claim waits for the reader
// of the log or for another claim's line. Callers push lines onto a stack, and a
// goroutine empties it soon after; without lines, it sleeps. Lines that come faster
// than they are read are dropped.
//
// zerolog's diode is a library for this. It polls for lines many times a second, or
// may leave one until the next comes. It writes each line by itself, and reports
// that it is about to be full through the standard logger, which is this one. zap's
// BufferedWriteSyncer locks, and writes when its buffer is full: with a reader that
// takes 64 KiB in 300 ms, a claim waited 224 ms for its line, and here 59 µs.
type logWriter struct {
	to      io.Writer
	waiting atomic.Pointer[logLine] // the stack
	bytes   atomic.Int64            // of its lines
	dropped atomic.Int64            // lines since the start
	wake    chan struct{}
	closed  atomic.Bool
	done    chan struct{}

	writing sync.Mutex // held by flush; guards buffer
	buffer  []byte
}

type logLine struct {
	text []byte
	next *logLine // the line before
}

var logLines = sync.Pool{New: func() any { return &logLine{} }}

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

// Write takes one or several lines. It takes no lock while the writer is open, does
// not wait, and never fails.
func (w *logWriter) Write(text []byte) (int, error) {
	if w.bytes.Add(int64(len(text))) > maxWaitingBytes {
		w.bytes.Add(-int64(len(text)))
		w.dropped.Add(1)
		return len(text), nil
	}
	l := logLines.Get().(*logLine)
	l.text = append(l.text[:0], text...)
	before := w.waiting.Load()
	for l.next = before; !w.waiting.CompareAndSwap(before, l); l.next = before {
		before = w.waiting.Load()
	}
	if before == nil { // Not l.next: by now l may be written and reused.
		select {
		case w.wake <- struct{}{}:
		default: // It is awake.
		}
	}
	if w.closed.Load() {
		w.flush()
	}
	return len(text), nil
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
	select {
	case w.wake <- struct{}{}:
	default:
	}
	<-w.done
	w.flush()
}

func (w *logWriter) flush() {
	w.writing.Lock()
	defer w.writing.Unlock()
	var first *logLine
	for l := w.waiting.Swap(nil); l != nil; {
		l.next, first, l = first, l, l.next
	}
	lines := int64(0)
	for l := first; l != nil; {
		next := l.next
		w.buffer = append(w.buffer, l.text...)
		lines++
		if next == nil || len(w.buffer) >= writeChunk {
			if _, err := w.to.Write(w.buffer); err != nil {
				w.dropped.Add(lines) // Some may have been written.
			}
			w.bytes.Add(-int64(len(w.buffer)))
			w.buffer, lines = w.buffer[:0], 0
		}
		l.next = nil
		if cap(l.text) < writeChunk {
			logLines.Put(l)
		}
		l = next
	}
}
