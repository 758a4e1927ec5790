// Command race proves at length that no claim kind ever has two default classes, with replicas of classbind and API servers of its own.
// Flags set how long and how wide; arguments name the scenarios to run, instead of all. It fails if anything was not as it should be.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/e2e/command"
	"github.com/classbind/classbind/e2e/race"
)

// settings of a race: rounds of each scenario, replicas of classbind, API servers on one etcd, and writers of a round,
// each of a class of its own.
type settings struct{ rounds, replicas, apiServers, writers int }

func main() {
	klog.SetLogger(logr.Discard()) // What fails is an error here, too; what is interrupted is no news.
	ctrl.SetLogger(logr.Discard())
	s := settings{}
	pflag.IntVar(&s.rounds, "rounds", 2000, "`number` of rounds of each scenario")
	pflag.IntVar(&s.replicas, "replicas", 3, "`number` of replicas of classbind")
	pflag.IntVar(&s.apiServers, "api-servers", 2, "`number` of API servers on one etcd")
	pflag.IntVar(&s.writers, "writers", 16, "`number` of classes, or of claims, that are written at once")
	pflag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, s, pflag.Args()) })
}

// run the scenarios of these names, or all, and print what came of them in the end.
func run(ctx context.Context, s settings, names []string) (err error) {
	if min(s.rounds, s.replicas, s.apiServers, s.writers-1) < 1 {
		return errors.New("--rounds, --replicas and --api-servers must be at least 1, and --writers at least 2")
	}
	all := race.Scenarios()
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s race.Scenario) bool { return s.Name == name }) {
			return fmt.Errorf("there is no scenario %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "classbind-race-")
	if err != nil {
		return err
	}
	commands, total := race.Commands{}, race.Result{}
	defer func() {
		_ = os.RemoveAll(dir)
		fmt.Printf("double defaults: %d in %d rounds (%d writers, %d replicas, %d API servers)\n",
			total.Doubles, total.Rounds, s.writers, s.replicas, s.apiServers)
		if err == nil && total.Violations > 0 {
			err = fmt.Errorf("%d violations", total.Violations)
		}
	}()
	for _, scenario := range all {
		if len(names) > 0 && !slices.Contains(names, scenario.Name) {
			continue
		}
		result, err := one(ctx, scenario, s, dir, commands)
		total.Rounds += result.Rounds
		total.Doubles += result.Doubles
		total.Violations += result.Violations
		if err != nil {
			return err
		}
	}
	return nil
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
