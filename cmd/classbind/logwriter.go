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
	// lineDelay is for how long a line waits for others, to be written with them:
	// where claims are few, to wake up for each line is much of what a claim takes. A
	// crash loses the lines of that time.
	lineDelay = 100 * time.Millisecond
	// mostWaiting bytes are some twenty thousand decisions.
	mostWaiting = 8 << 20
	// mostWritten bytes, about, are written at once: what a pipe takes.
	mostWritten = 64 << 10
)

// logWriter writes lines in the background, so that no claim waits for whoever
// reads them, or for another claim's line: who has one leaves it on a stack,
// which is emptied a moment later, and while there is none nothing
// happens at all. Lines that come faster than they are read are dropped.
//
// zerolog's diode is a library for this. It looks for lines many times a second,
// or may leave one lying until the next, writes each by itself, and logs by way
// of the standard logger, which is this one, that it is about to be full.
type logWriter struct {
	to      io.Writer
	waiting atomic.Pointer[logLine] // the stack
	bytes   atomic.Int64            // of its lines
	dropped atomic.Int64            // lines, ever
	wake    chan struct{}
	closed  atomic.Bool
	done    chan struct{}

	writing sync.Mutex // of those who empty the stack
	buffer  []byte
}

type logLine struct {
	text []byte
	next *logLine // which is the line before
}

var logLines = sync.Pool{New: func() any { return &logLine{} }}

// newLogWriter keeps what is written until it runs.
func newLogWriter(to io.Writer) *logWriter {
	return &logWriter{to: to, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// RegisterMetrics with what controller-runtime serves.
func (w *logWriter) RegisterMetrics() error {
	return metrics.Registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "classbind_log_lines_dropped_total",
		Help: "Lines of the log that were dropped, because they could not be written, or not as fast as they came.",
	}, func() float64 { return float64(w.dropped.Load()) }))
}

// Write a line, or several. It takes no lock and waits for nothing, and never fails.
func (w *logWriter) Write(text []byte) (int, error) {
	if w.bytes.Add(int64(len(text))) > mostWaiting {
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
	if before == nil { // The line itself may have been written by now, and be another's.
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

// run until the writer is closed, and say in the log itself what was dropped.
func (w *logWriter) run(log logr.Logger) {
	defer close(w.done)
	said := int64(0)
	for range w.wake {
		if w.closed.Load() {
			return
		}
		time.Sleep(lineDelay)
		w.flush()
		if dropped := w.dropped.Load(); dropped > said {
			log.Info("Dropped lines of the log, which could not be written, or not as fast as they came", "lines", dropped-said)
			said = dropped
		}
	}
}

// close writes what waits. From then on, lines are written as they come.
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
		if next == nil || len(w.buffer) >= mostWritten {
			if _, err := w.to.Write(w.buffer); err != nil {
				w.dropped.Add(lines) // Some of them may be there.
			}
			w.bytes.Add(-int64(len(w.buffer)))
			w.buffer, lines = w.buffer[:0], 0
		}
		l.next = nil
		if cap(l.text) < mostWritten {
			logLines.Put(l)
		}
		l = next
	}
}
