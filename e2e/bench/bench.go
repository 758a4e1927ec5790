// Package bench measures classbind beside a webhook that does nothing: on a real control plane, with deploy/ applied and the built
// command, as the tests run it.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
)

// part of the measurement.
type part struct {
	name string
	run  func(*run, context.Context) error
}

// parts in the order in which they run.
var parts = []part{{"webhook", (*run).measureWebhook}, {"create", (*run).measureCreate}, {"storm", (*run).measureStorm}}

// loadGCPercent has the heap grow to so many percent more than is in use (GOGC).
const loadGCPercent = 2000

// Settings of a measurement.
type Settings struct {
	// Only these parts; empty means all.
	Only []string
	// Rounds of each of what is compared, and how long one takes.
	Rounds int
	Round  time.Duration
	// Connections of a closed loop that drives a webhook. Four keep two cores busy, the load included. With eight, both webhooks answer as
	// many reviews a second as with four, and the p99 of both is about 3 ms: then it measures the queue more than a webhook.
	Connections int
	// Progress is called with what goes on.
	Progress io.Writer

	// How many classes and kinds there are. All kinds of class serve all kinds of claim, and matches, a divisor of the classes, match one.
	classes, classKinds, claimKinds, matches int
	// turns of creations of each sort in a round of the part create.
	turns int
	// changes of classes, and claims, in a second of the part storm.
	changes, claims int
}

// AddFlags of what a run may change. All other settings are those of the documents.
func (s *Settings) AddFlags(fs *pflag.FlagSet) {
	s.classes, s.classKinds, s.claimKinds, s.matches = 10_000, 50, 20, 10
	s.turns, s.changes, s.claims = 16, 1000, 500
	fs.StringSliceVar(&s.Only, "only", nil, "`parts` to run, instead of all")
	fs.IntVar(&s.Rounds, "rounds", 10, "`number` of rounds of each of what is compared, after one that warms up")
	fs.DurationVar(&s.Round, "round", 2*time.Second, "`time` that a round takes")
	fs.IntVar(&s.Connections, "connections", 4, "`number` of connections that drive a webhook, each with a request in flight")
}

func (s *Settings) validate() error {
	for _, name := range s.Only {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("--only=%s: there is no such part", name)
		}
	}
	if s.Rounds < 1 || s.Connections < 1 || s.Round < 50*time.Millisecond {
		return errors.New("--rounds and --connections must be at least 1, and --round at least 50ms")
	}
	return nil
}

// Run the parts that the settings name, and print a table for each when it ends. The last table has the bounds; an error names those that
// are not met.
func Run(ctx context.Context, s Settings, out io.Writer) (err error) {
	if err := s.validate(); err != nil {
		return err
	}
	// The load shares its processors with what it measures, and allocates for each
	// request. Without this, it would collect garbage dozens of times a second.
	defer debug.SetGCPercent(debug.SetGCPercent(loadGCPercent))
	r := &run{Settings: s, out: out, measured: map[string]measure{}}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(ctx); err != nil {
		return err
	}
	r.line("%d CPUs for all of it, %s", runtime.NumCPU(), runtime.Version())
	for _, part := range parts {
		if len(s.Only) > 0 && !slices.Contains(s.Only, part.name) {
			continue
		}
		if err := part.run(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return r.judge()
}

func (r *run) line(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format+"\n", args...) }

// table of rows, "|" between their cells.
func (r *run) table(rows ...string) {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.ReplaceAll(row, "|", "\t")+"\t")
	}
	_ = w.Flush()
}
