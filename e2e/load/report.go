package load

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Report of a load.
type Report struct {
	// Creations that were started, Failures among them, and those that were Late, as a client that has too much to do starts them.
	Creations, Failures, Late int
	// Unbound claims are stored, without a class.
	Unbound int
	// Unlike are those whose answer was not what is stored: another class, or no such claim.
	Unlike int
	// Foreign claims were given a class that they may not have.
	Foreign int
	// Latencies of what succeeded: the median, the 99th percentile and the worst.
	P50, P99, Worst time.Duration
	// Reasons of the failures, the most frequent first.
	Reasons []Reason
}

// Reason of failures.
type Reason struct {
	Text  string
	Count int
	// First and Last time of an answer with it, relative to the mark.
	First, Last time.Duration
}

func newReport(creations []creation, stored map[string]string, mark time.Time) Report {
	r := Report{Creations: len(creations)}
	var took []time.Duration
	reasons := map[string]*Reason{}
	for _, c := range creations {
		if c.late >= lateness {
			r.Late++
		}
		if c.err == nil {
			took = append(took, c.took)
			if class, ok := stored[c.name]; !ok || class != c.class {
				r.Unlike++
			}
			if c.foreign {
				r.Foreign++
			}
			continue
		}
		r.Failures++
		text, at := reason(c.err), c.due.Add(c.took).Sub(mark)
		if reasons[text] == nil {
			reasons[text] = &Reason{Text: text, First: at, Last: at}
		}
		of := reasons[text]
		of.Count, of.First, of.Last = of.Count+1, min(of.First, at), max(of.Last, at)
	}
	for _, class := range stored {
		if class == "" {
			r.Unbound++
		}
	}
	if slices.Sort(took); len(took) > 0 {
		r.P50, r.P99, r.Worst = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	for _, of := range reasons {
		r.Reasons = append(r.Reasons, *of)
	}
	slices.SortFunc(r.Reasons, func(a, b Reason) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Text, b.Text)
	})
	return r
}

// addresses differ from connection to connection, and the names of claims from creation to creation.
var addresses = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+:\d+(->\d+\.\d+\.\d+\.\d+:\d+)?|\bload-\d+\b`)

// reason is what failures of one kind have in common.
func reason(err error) string { return addresses.ReplaceAllString(err.Error(), "…") }

// LastFailure is the time of the last answer that was one, relative to the mark.
func (r Report) LastFailure() time.Duration {
	last := time.Duration(0)
	for _, of := range r.Reasons {
		last = max(last, of.Last)
	}
	return last
}

// String is one line, and one more for each reason of failures.
func (r Report) String() string {
	var text strings.Builder
	add := func(format string, args ...any) { _, _ = fmt.Fprintf(&text, format, args...) }
	add("%d creations, %d failed, %d stored unbound; p50 %.1f ms, p99 %.1f ms, worst %.1f ms",
		r.Creations, r.Failures, r.Unbound, Milliseconds(r.P50), Milliseconds(r.P99), Milliseconds(r.Worst))
	if r.Unlike > 0 {
		add("; %d stored otherwise than answered", r.Unlike)
	}
	if r.Foreign > 0 {
		add("; %d with a class of others", r.Foreign)
	}
	if r.Late > 0 {
		add("; %d started late", r.Late)
	}
	for _, of := range r.Reasons {
		add("\n  %d from %+.1f s to %+.1f s: %s", of.Count, of.First.Seconds(), of.Last.Seconds(), of.Text)
	}
	return text.String()
}

// Milliseconds of a latency.
func Milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }
