// Command race proves at length that no claim kind ever has two default classes,
// with replicas of classbind and API servers of its own. $ROUNDS, $REPLICAS,
// $APISERVERS and $WRITERS set how long and how wide; arguments name the
// scenarios to run, instead of all. It fails if anything was not as it should be.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/classbind/classbind/e2e/race"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		os.Exit(1)
	}
}

// run all that is asked for. What came of it is the last line, so the error is printed before.
func run(ctx context.Context, names []string) error {
	settings, err := race.SettingsFrom(os.Getenv)
	var scenarios []race.Scenario
	if err == nil {
		scenarios, err = chosen(names)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return err
	}
	dir, err := os.MkdirTemp("", "classbind-race-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var total race.Result
	commands := race.Commands{}
	for _, s := range scenarios {
		var result race.Result
		result, err = one(ctx, s, settings, dir, commands)
		total.Rounds += result.Rounds
		total.Doubles += result.Doubles
		total.Violations += result.Violations
		if err != nil {
			break
		}
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted; everything is stopped")
	}
	if err == nil && total.Violations > 0 {
		err = fmt.Errorf("%d violations, %d of them double defaults", total.Violations, total.Doubles)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	fmt.Printf("double defaults: %d in %d rounds (%d classes, %d replicas, %d API servers)\n",
		total.Doubles, total.Rounds, settings.Writers, settings.Replicas, settings.APIServers)
	return err
}

// one scenario, on a cluster of its own. What it needs of commands is built in dir.
func one(ctx context.Context, s race.Scenario, o race.Settings, dir string, commands race.Commands) (_ race.Result, err error) {
	if err := commands.Build(ctx, dir, s.Timing, os.Stdout); err != nil {
		return race.Result{}, err
	}
	cluster, err := race.NewCluster(ctx, o.APIServers, s.Timing.Request, os.Stdout)
	if err != nil {
		return race.Result{}, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	fleet, err := cluster.Deploy(ctx, o.Replicas, s.Timing, commands)
	if err != nil {
		return race.Result{}, err
	}
	defer func() { err = errors.Join(err, fleet.Stop()) }()
	return fleet.Race(ctx, s, o.Rounds, o.Writers)
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
