package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// The parts of the measurement, in the order in which they run.
const (
	partWebhook = "webhook"
	partCreate  = "create"
	partStorm   = "storm"
	partScale   = "scale"
)

var parts = []string{partWebhook, partCreate, partStorm, partScale}

// Settings of a measurement.
type Settings struct {
	// Only these parts.
	Only []string
	// Rounds of each of what is compared, and how long one takes.
	Rounds int
	Round  time.Duration
	// Connections of a closed loop that drives a webhook. Four keep two cores busy, the load included. With eight, both webhooks answer as
	// many reviews a second as with four, and the p99 of both is about 3 ms: then it tells more of the queue than of a webhook.
	Connections int
	// Classes and their kinds, the kinds of claim that all of them serve, and how
	// many match a claim, a divisor of the classes, where there are many of all of them.
	Classes    int
	ClassKinds int
	ClaimKinds int
	Matches    int
	// Creates of claims of each sort in a round of the part create.
	Creates int
	// Changes of classes, and claims, in a second of the part storm.
	Changes int
	Claims  int
	// Held are the classes of one kind that a replica holds at most in the part
	// scale, and SingleChanges how many of them change one after the other.
	Held          int
	SingleChanges int
	// Progress is told what goes on.
	Progress io.Writer
}

// AddFlags of what a run may change. All other settings are those of the documents.
func (s *Settings) AddFlags(fs *pflag.FlagSet) {
	s.Classes, s.ClassKinds, s.ClaimKinds, s.Matches = 10_000, 50, 20, 10
	s.Creates, s.Changes, s.Claims = 400, 1000, 500
	s.Held, s.SingleChanges = 100_000, 200
	fs.StringSliceVar(&s.Only, "only", parts, "`parts` to run: "+strings.Join(parts, ", "))
	fs.IntVar(&s.Rounds, "rounds", 10, "`number` of rounds of each of what is compared, after one that warms up")
	fs.DurationVar(&s.Round, "round", 2*time.Second, "`time` that a round takes")
	fs.IntVar(&s.Connections, "connections", 4, "`number` of connections that drive a webhook, each with a request in flight")
}

// say what goes on.
func (s *Settings) say(format string, args ...any) { _, _ = fmt.Fprintf(s.Progress, format, args...) }

// Validate says everything that is wrong, flag by flag.
func (s *Settings) Validate() error {
	var errs []error
	for _, part := range s.Only {
		if !slices.Contains(parts, part) {
			errs = append(errs, fmt.Errorf("--only=%s: must be some of %s", part, strings.Join(parts, ", ")))
		}
	}
	if s.Rounds < 1 {
		errs = append(errs, fmt.Errorf("--rounds=%d: must be at least 1", s.Rounds))
	}
	if s.Connections < 1 {
		errs = append(errs, fmt.Errorf("--connections=%d: must be at least 1", s.Connections))
	}
	if s.Round < 50*time.Millisecond {
		errs = append(errs, fmt.Errorf("--round=%s: must be at least 50ms", s.Round))
	}
	return errors.Join(errs...)
}

// runs reports whether any of these parts is to run.
func (s *Settings) runs(parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(s.Only, part) })
}
