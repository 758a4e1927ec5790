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
	// Doubles are the double defaults, and Violations all of what was not as it should be, these included.
	Doubles, Violations int
}

// report of a scenario while it runs.
type report struct {
	progress io.Writer
	scenario Scenario
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
	_, _ = fmt.Fprintf(r.progress, "  %s: %d of %d rounds, %.1f/s, violations: %d\n",
		r.scenario.Name, r.result.Rounds, r.of, float64(r.result.Rounds)/time.Since(r.start).Seconds(), r.result.Violations)
}

// end says in one line what came of the scenario.
func (r *report) end(calls []int) {
	total, what := r.tally.total()
	if total >= many {
		if !r.scenario.Chaos && slices.Contains(calls, 0) { // Chaos may kill one over and over.
			r.violation("not every replica took part: they answered %v calls", calls)
		}
		if r.scenario.Chaos && (r.kills == 0 || r.tally[RefusedByOther] == 0) {
			r.violation("there was too little chaos: %d kills, %s", r.kills, what)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	took := time.Since(r.start)
	parts := []string{
		fmt.Sprintf("%s: double defaults: %d in %d rounds, violations: %d",
			r.scenario.Name, r.result.Doubles, r.result.Rounds, r.result.Violations),
		fmt.Sprintf("%s (%.1f rounds/s)", took.Round(time.Second), float64(r.result.Rounds)/took.Seconds()),
		what,
	}
	if r.scenario.Chaos {
		parts = append(parts, fmt.Sprintf("%d kills", r.kills))
	}
	if r.waits > 0 {
		parts = append(parts, fmt.Sprintf("the next default was waited for %d times, at most %.1f s", r.waits, r.longest.Seconds()))
	}
	if r.forged > 0 {
		parts = append(parts, fmt.Sprintf("%d forged reviews, %d of them allowed", r.forged, r.believed))
	}
	_, _ = fmt.Fprintln(r.progress, strings.Join(parts, "; "))
}
