// Package race proves on a real cluster that no claim kind ever has two default classes: it has many writers make classes default at once,
// round after round, through several API servers and several replicas of classbind, and replays what came of it.
package race

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/progress"
)

// Race all rounds of a scenario, each of so many writers. The result is valid
// beside an error, too, which means that the race could not go on.
func (f *Fleet) Race(ctx context.Context, s Scenario, rounds, writers int) (Result, error) {
	ctx, cancel := context.WithCancel(ctx) // of the watches
	defer cancel()
	r := &report{progress: f.cluster.progress, scenario: s, of: rounds, start: time.Now(), tally: tally{}}
	var lanes []*lane
	for i := range s.Lanes {
		lanes = append(lanes, newLane(f.cluster, r, i))
	}
	err := progress.During(f.cluster.progress, s.Name+": registering kinds, until all are guarded", func() error {
		return f.prepare(ctx, lanes, writers)
	})
	if err == nil {
		err = f.race(ctx, lanes, writers, r)
	}
	f.failed = f.failed || err != nil && ctx.Err() == nil || r.result.Violations > 0
	return r.result, err
}

// prepare registers the lanes' kinds, begins to watch them, and waits until they are guarded.
func (f *Fleet) prepare(ctx context.Context, lanes []*lane, writers int) error {
	var manifest strings.Builder
	for _, l := range lanes {
		manifest.WriteString(l.definitions())
		manifest.WriteString(l.registrations())
	}
	if _, _, err := f.cluster.Kubectl(ctx, strings.NewReader(manifest.String()), "apply", "-f", "-"); err != nil {
		return err
	}
	guarded := "--for=condition=" + v1beta1.ConditionGuarded
	if _, _, err := f.cluster.Kubectl(ctx, nil, "wait", guarded, "classkinds", "--all", "--timeout=90s"); err != nil {
		return err
	}
	for _, l := range lanes {
		if err := l.awaitGuard(ctx, len(f.replicas)); err != nil {
			return err
		}
		classes := map[string]dynamic.ResourceInterface{}
		for _, kind := range l.kinds.names() {
			classes[kind] = l.classes(kind)
		}
		if err := l.watch(ctx, classes); err != nil {
			return err
		}
		for _, c := range l.standing(writers) {
			if err := l.create(ctx, c); err != nil {
				return err
			}
		}
		if l.scenario.Partitions {
			if err := l.awaitPartitions(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// race all rounds, and say in a line what came of them.
func (f *Fleet) race(parent context.Context, lanes []*lane, writers int, r *report) error {
	before, err := f.calls(parent)
	if err != nil {
		return err
	}
	racing, stopDisturbing := context.WithCancel(parent)
	defer stopDisturbing()
	disturbances, err := f.disturb(racing, lanes, r)
	if err != nil {
		return err
	}

	r.start = time.Now()
	endTicking := progress.Ticking(f.cluster.progress, r.tick)
	var number atomic.Int64
	all, ctx := errgroup.WithContext(parent)
	for _, l := range lanes {
		all.Go(func() error {
			round := l.round
			switch s := r.scenario; {
			case s.Chaos:
				round = l.chaosRound
			case s.Twins:
				round = l.twinsRound
			case s.Partitions:
				round = l.partitionsRound
			}
			for l.number = int(number.Add(1)); l.number <= r.of; l.number = int(number.Add(1)) {
				if err := round(ctx, writers); err != nil {
					return err
				}
				r.count(func() { r.result.Rounds++ })
			}
			return nil
		})
	}
	err = all.Wait()
	stopDisturbing()
	endTicking()
	if err = errors.Join(err, disturbances.Wait()); err != nil {
		return err
	}
	after, err := f.calls(parent)
	if err != nil {
		return err
	}
	for i := range after {
		after[i] -= before[i]
	}
	r.end(after)
	return nil
}

// disturb the lanes with the scenario's chaos and forgers, until the context ends.
func (f *Fleet) disturb(ctx context.Context, lanes []*lane, r *report) (*errgroup.Group, error) {
	var all errgroup.Group
	if r.scenario.Chaos {
		stop, err := f.cluster.sabotage(ctx, lanes)
		if err != nil {
			return nil, err
		}
		all.Go(func() error {
			defer stop()
			for ; ctx.Err() == nil; pauseUpTo(ctx, 2*time.Second) {
				r.count(func() { r.kills++ })
				if err := anyOf(f.replicas).kill(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if r.scenario.Forger {
		for range forgers {
			all.Go(func() error {
				f.forge(ctx, lanes, r)
				return nil
			})
		}
	}
	return &all, nil
}
