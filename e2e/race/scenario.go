package race

import (
	"maps"
	"slices"
	"time"
)

// Scenario is a way to race.
type Scenario struct {
	// Name is also the last part of its API groups.
	Name string
	// Lanes race side by side, each with kinds of its own. The rounds are shared out among them.
	Lanes []Kinds
	// Chaos kills replicas, deletes classes and creates them again under the same
	// name, and has a second webhook refuse what the guard admitted.
	Chaos bool
	// Forger sends reviews that no API server sends straight to the replicas.
	Forger bool
	// Partitions have a default each, and classes move between them.
	Partitions bool
	// Twins are clients that make one class default at once, which is refused.
	Twins bool
	// Timing that it needs.
	Timing Timing
}

// Timing of a cluster and its replicas. The zero value is as they are by default.
type Timing struct {
	// Request is the API servers' --request-timeout: the longest that they may take to store what was admitted.
	Request time.Duration
	// Window is the replicas' --in-flight-window, which has to be longer than that by what a machine that is short of processors may delay.
	Window time.Duration
	// Skews of the replicas' clocks, in turn; none, they are right.
	Skews []time.Duration
}

// Kinds of class, and the claim kinds that each serves.
type Kinds map[string][]string

var (
	threeForTwo = Kinds{"A": {"x"}, "B": {"x", "y"}, "C": {"y"}}
	threeForOne = Kinds{"A": {"z"}, "B": {"z"}, "C": {"z"}}
)

// Scenarios are those of the proof.
//
// The default window is so long that a round which waits for it would be the only one for minutes: but for chaos, which has a shorter one,
// all classes of a round are left in place, no longer default, until the next round is over. What the Leases remember is then seen to have
// been stored, and no one waits.
//
// The outermost clocks of skew are as far apart as the window is long: replicas count it by what they have seen, each for itself.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "race", Lanes: []Kinds{threeForTwo}},
		{Name: "one-kind", Lanes: []Kinds{threeForOne}},
		{Name: "partitions", Lanes: []Kinds{threeForTwo}, Partitions: true},
		{Name: "skew", Lanes: []Kinds{threeForTwo}, Timing: Timing{Skews: []time.Duration{-30 * time.Second, 0, 30 * time.Second}}},
		{Name: "twins", Lanes: []Kinds{threeForTwo}, Twins: true},
		{Name: "forger", Lanes: slices.Repeat([]Kinds{threeForTwo}, 2), Forger: true, Timing: short},
		{Name: "chaos", Lanes: slices.Repeat([]Kinds{threeForTwo}, 8), Chaos: true, Timing: short},
	}
}

// short timing, with which rounds that wait for a window do not take long.
var short = Timing{Request: 2 * time.Second, Window: 4 * time.Second}

// ShortScenarios are those for a test. All have the same timing, in which clocks differ and a window is over as soon as it may be.
func ShortScenarios() []Scenario {
	t := short
	t.Skews = []time.Duration{0, time.Second}
	return []Scenario{
		{Name: "race", Lanes: []Kinds{threeForTwo, threeForOne}, Timing: t},
		{Name: "partitions", Lanes: []Kinds{threeForTwo}, Partitions: true, Timing: t},
		{Name: "twins", Lanes: []Kinds{threeForTwo}, Twins: true, Timing: t},
		{Name: "forger", Lanes: []Kinds{threeForTwo, threeForOne}, Forger: true, Timing: t},
		{Name: "chaos", Lanes: slices.Repeat([]Kinds{threeForTwo}, 3), Chaos: true, Timing: t},
	}
}

// skew of a replica's clock.
func (t Timing) skew(replica int) time.Duration {
	if len(t.Skews) == 0 {
		return 0
	}
	return t.Skews[replica%len(t.Skews)]
}

// names of the class kinds, sorted.
func (k Kinds) names() []string { return slices.Sorted(maps.Keys(k)) }

// claimKinds that they serve, sorted.
func (k Kinds) claimKinds() []string {
	all := slices.Concat(slices.Collect(maps.Values(k))...)
	slices.Sort(all)
	return slices.Compact(all)
}

// servingOnly is a kind that serves the claim kind and no other.
func (k Kinds) servingOnly(claimKind string) string {
	for _, name := range k.names() {
		if slices.Equal(k[name], []string{claimKind}) {
			return name
		}
	}
	panic("no kind serves only " + claimKind)
}
