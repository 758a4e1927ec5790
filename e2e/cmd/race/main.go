// Command race proves at length that no claim kind ever has two default classes, and that claims never use more of a class than it holds,
// with replicas of classbind and API servers of its own. Flags set how long and how wide; arguments name the scenarios to run, instead of
// all. It fails if anything was not as it should be.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/classbind/classbind/e2e/race"
)

// settings of a race: rounds of each scenario, replicas of classbind, API servers on one etcd, and writers of a round,
// each of a class of its own.
type settings struct{ rounds, replicas, apiServers, writers int }

func main() {
	s := settings{}
	pflag.IntVar(&s.rounds, "rounds", 2000, "`number` of rounds of each scenario")
	pflag.IntVar(&s.replicas, "replicas", 3, "`number` of replicas of classbind")
	pflag.IntVar(&s.apiServers, "api-servers", 2, "`number` of API servers on one etcd")
	pflag.IntVar(&s.writers, "writers", 16, "`number` of classes, or of claims, that are written at once")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defaults, capacities, err := run(ctx, s, pflag.Args())
	if ctx.Err() != nil {
		err = errors.New("interrupted; everything is stopped")
	}
	stop()
	if violations := defaults.Violations + capacities.Violations; err == nil && violations > 0 {
		err = fmt.Errorf("%d violations, %d of them double defaults and %d over capacity", violations, defaults.Doubles, capacities.Over)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	if defaults.Rounds > 0 || capacities.Rounds == 0 {
		fmt.Printf("double defaults: %d in %d rounds (%d classes, %d replicas, %d API servers)\n",
			defaults.Doubles, defaults.Rounds, s.writers, s.replicas, s.apiServers)
	}
	if capacities.Rounds > 0 {
		fmt.Printf("over capacity: %d in %d rounds (%d writers, %d replicas, %d API servers)\n",
			capacities.Over, capacities.Rounds, s.writers, s.replicas, s.apiServers)
	}
	if err != nil {
		os.Exit(1)
	}
}

// run the scenarios of these names, or all, for defaults and for capacities.
func run(ctx context.Context, s settings, names []string) (defaults, capacities race.Result, err error) {
	if min(s.rounds, s.replicas, s.apiServers, s.writers-1) < 1 {
		return defaults, capacities, errors.New("--rounds, --replicas and --api-servers must be at least 1, and --writers at least 2")
	}
	scenarios, err := chosen(names)
	if err != nil {
		return defaults, capacities, err
	}
	dir, err := os.MkdirTemp("", "classbind-race-")
	if err != nil {
		return defaults, capacities, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	commands := race.Commands{}
	for _, scenario := range scenarios {
		total := &defaults
		if scenario.Capacity {
			total = &capacities
		}
		result, err := one(ctx, scenario, s, dir, commands)
		total.Rounds += result.Rounds
		total.Doubles += result.Doubles
		total.Over += result.Over
		total.Violations += result.Violations
		if err != nil {
			return defaults, capacities, err
		}
	}
	return defaults, capacities, nil
}

// one scenario, on a cluster of its own. What it needs of commands is built in dir.
func one(ctx context.Context, s race.Scenario, o settings, dir string, commands race.Commands) (_ race.Result, err error) {
	if err := commands.Build(ctx, dir, s.Timing, os.Stdout); err != nil {
		return race.Result{}, err
	}
	cluster, err := race.NewCluster(ctx, o.apiServers, s.Timing.Request, os.Stdout)
	if err != nil {
		return race.Result{}, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	fleet, err := cluster.Deploy(ctx, o.replicas, s.Timing, commands)
	if err != nil {
		return race.Result{}, err
	}
	defer func() { err = errors.Join(err, fleet.Stop()) }()
	return fleet.Race(ctx, s, o.rounds, o.writers)
}

// chosen are the scenarios of these names, or all.
func chosen(names []string) ([]race.Scenario, error) {
	all := race.Scenarios()
	if len(names) == 0 {
		return all, nil
	}
	var scenarios []race.Scenario
	for _, name := range names {
		i := slices.IndexFunc(all, func(s race.Scenario) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no scenario %q", name)
		}
		scenarios = append(scenarios, all[i])
	}
	return scenarios, nil
}
