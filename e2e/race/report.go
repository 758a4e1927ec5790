package race

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// shown is how many violations are printed; all are counted.
	shown = 20
	// many writes are enough to expect of chance that nothing was left out.
	many = 150
)

// Result of a scenario.
type Result struct {
	Rounds int
	// Doubles are the double defaults, and Violations all of what was not as it should be, these included. Over are the moments at which
	// claims came to use more of a class than it holds.
	Doubles, Over, Violations int
}

// report of a scenario while it runs.
type report struct {
	progress io.Writer
	scenario string
	chaos    bool
	capacity bool // not defaults
	of       int
	start    time.Time

	mu      sync.Mutex
	tally   tally
	result  Result
	kills   int
	waits   int
	longest time.Duration
	// forged reviews that were answered, and those of them that were allowed.
	forged, believed int
	// fills of a pool to the last place, and reservations in one ledger, and bytes of its JSON, at most.
	fills, reservations, bytes int
}

func (r *report) double(format string, args ...any) {
	r.count(func() { r.result.Doubles++ })
	r.violation("DOUBLE DEFAULT: "+format, args...)
}

func (r *report) over(format string, args ...any) {
	r.count(func() { r.result.Over++ })
	r.violation("OVER CAPACITY: "+format, args...)
}

// worst that happened, and how often.
func (r *report) worst() string {
	if r.capacity {
		return fmt.Sprintf("over capacity: %d", r.result.Over)
	}
	return fmt.Sprintf("double defaults: %d", r.result.Doubles)
}

func (r *report) violation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.result.Violations++; r.result.Violations <= shown {
		_, _ = fmt.Fprintf(r.progress, "  VIOLATION: "+format+"\n", args...)
	}
}

// count something that happened.
func (r *report) count(add func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add()
}

// tick says how far it is.
func (r *report) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.progress, "  %s: %d of %d rounds, %.1f/s, %s, violations: %d\n",
		r.scenario, r.result.Rounds, r.of, float64(r.result.Rounds)/time.Since(r.start).Seconds(), r.worst(), r.result.Violations)
}

// end says in one line what came of the scenario.
func (r *report) end(calls []int) {
	if r.tally.total() >= many {
		if !r.chaos && slices.Contains(calls, 0) { // Chaos may kill one over and over.
			r.violation("not every replica took part: they answered %v calls", calls)
		}
		if r.chaos && (r.kills == 0 || r.tally[RefusedByOther] == 0) {
			r.violation("there was too little chaos: %d kills, %s", r.kills, r.tally)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	took := time.Since(r.start)
	parts := []string{
		fmt.Sprintf("%s: %s in %d rounds, violations: %d", r.scenario, r.worst(), r.result.Rounds, r.result.Violations),
		fmt.Sprintf("%s (%.1f rounds/s)", took.Round(time.Second), float64(r.result.Rounds)/took.Seconds()),
		r.tally.String(),
		fmt.Sprintf("calls answered by the replicas: %v", calls),
	}
	if r.capacity {
		parts = append(parts, fmt.Sprintf("%d kills, %d pools filled to the last place, at most %d reservations and %d bytes in a ledger",
			r.kills, r.fills, r.reservations, r.bytes))
	} else if r.chaos {
		parts = append(parts, fmt.Sprintf("%d kills", r.kills),
			fmt.Sprintf("the next default was waited for %d times, at most %.1f s after what was last admitted",
				r.waits, r.longest.Seconds()))
	}
	if r.forged > 0 {
		parts = append(parts, fmt.Sprintf("%d forged reviews, of which %d were allowed", r.forged, r.believed))
	}
	if !r.chaos && r.waits > 0 {
		parts = append(parts, fmt.Sprintf("the next default took %.1f s at most", r.longest.Seconds()))
	}
	_, _ = fmt.Fprintln(r.progress, strings.Join(parts, "; "))
}
