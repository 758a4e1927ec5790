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
	partLocks   = "locks"
	partScale   = "scale"
)

var parts = []string{partWebhook, partCreate, partStorm, partLocks, partScale}

// Settings of a measurement.
type Settings struct {
	// Only these parts.
	Only []string `json:"only"`
	// Rounds of each of what is compared, and how long one takes.
	Rounds int           `json:"rounds"`
	Round  time.Duration `json:"-"`
	// Connections of a closed loop that drives a webhook. Four keep two cores busy, the
	// load included. With eight, both webhooks answer as many reviews a second as with four,
	// and the p99 of both is about 3 ms: then it tells more of the queue than of a webhook.
	Connections int `json:"connections"`
	// Classes and their kinds, the kinds of claim that all of them serve, and how
	// many match a claim, where there are many of all of them.
	Classes    int `json:"classes"`
	ClassKinds int `json:"classKinds"`
	ClaimKinds int `json:"claimKinds"`
	Matches    int `json:"matches"`
	// Creates of claims of each sort in a round of the part create.
	Creates int `json:"creates"`
	// Changes of classes, and claims, in a second of the part storm.
	Changes int `json:"changes"`
	Claims  int `json:"claims"`
	// Held are the classes of one kind that a replica holds at most in the part
	// scale, and SingleChanges how many of them change one after the other.
	Held          int `json:"held"`
	SingleChanges int `json:"singleChanges"`
	// JSON is the file to which the numbers are written, CPUProfile one for a
	// profile of classbind in the part webhook, or empty.
	JSON       string `json:"-"`
	CPUProfile string `json:"-"`

	// Progress is told what goes on.
	Progress io.Writer `json:"-"`
}

// AddFlags of all settings, with their defaults.
func (s *Settings) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&s.Only, "only", parts, "`parts` to run: "+strings.Join(parts, ", "))
	fs.IntVar(&s.Rounds, "rounds", 10, "`number` of rounds of each of what is compared, after one that warms up")
	fs.DurationVar(&s.Round, "round", 2*time.Second, "`time` that a round takes")
	fs.IntVar(&s.Connections, "connections", 4, "`number` of connections that drive a webhook, each with a request in flight")
	fs.IntVar(&s.Classes, "classes", 10_000, "`number` of classes, of --class-kinds in turn")
	fs.IntVar(&s.ClassKinds, "class-kinds", 50, "`number` of kinds of class, each of which serves all kinds of claim")
	fs.IntVar(&s.ClaimKinds, "claim-kinds", 20, "`number` of kinds of claim")
	fs.IntVar(&s.Matches, "matches", 10, "`number` of classes that match a claim, a divisor of --classes")
	fs.IntVar(&s.Creates, "creates", 400, "`number` of claims of each sort that are created through the API server in a round")
	fs.IntVar(&s.Changes, "changes", 1000, "`number` of classes that change in a second in a storm")
	fs.IntVar(&s.Claims, "claims", 500, "`number` of claims in a second beside a storm")
	fs.IntVar(&s.Held, "held", 100_000, "`number` of classes that are held at most in the part scale")
	fs.IntVar(&s.SingleChanges, "single-changes", 200, "`number` of classes that change one after the other in the part scale")
	fs.StringVar(&s.JSON, "json", "bin/bench.json", "`file` to which the numbers are written")
	fs.StringVar(&s.CPUProfile, "cpu-profile", "",
		"`file` to which a CPU profile of classbind is written, taken in a round of its own in the part webhook")
}

// Validate says everything that is wrong, flag by flag.
func (s *Settings) Validate() error {
	var errs []error
	wrong := func(flag string, value any, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s=%v: %s", flag, value, fmt.Sprintf(format, args...)))
	}
	if len(s.Only) == 0 {
		wrong("only", "", "must be some of %s", strings.Join(parts, ", "))
	}
	for _, part := range s.Only {
		if !slices.Contains(parts, part) {
			wrong("only", part, "must be some of %s", strings.Join(parts, ", "))
		}
	}
	for _, n := range []struct {
		flag        string
		value       int
		least, most int
	}{
		{"rounds", s.Rounds, 1, 1000},
		{"connections", s.Connections, 1, 1000},
		{"classes", s.Classes, 1, 1_000_000},
		{"class-kinds", s.ClassKinds, 1, 100},
		{"claim-kinds", s.ClaimKinds, 1, 100},
		{"matches", s.Matches, 1, 1000},
		{"creates", s.Creates, 1, 100_000},
		{"changes", s.Changes, 1, 100_000},
		{"claims", s.Claims, 1, 100_000},
		{"held", s.Held, 100, 1_000_000},
		{"single-changes", s.SingleChanges, 1, 100_000},
	} {
		if n.value < n.least || n.value > n.most {
			wrong(n.flag, n.value, "must be from %d to %d", n.least, n.most)
		}
	}
	if s.Matches > 0 && s.Classes%s.Matches != 0 {
		wrong("matches", s.Matches, "must divide --classes, which is %d", s.Classes)
	}
	if s.Round < 50*time.Millisecond || s.Round > time.Hour {
		wrong("round", s.Round, "must be from 50ms to 1h")
	}
	return errors.Join(errs...)
}

// runs says whether any of these parts is to run.
func (s *Settings) runs(parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(s.Only, part) })
}
