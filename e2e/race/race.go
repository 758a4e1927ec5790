// Package race proves on a real cluster that no claim kind ever has two default classes: it has many writers make classes default at once,
// round after round, through several API servers and several replicas of classbind, and replays what came of it. In the same way it proves
// that claims never use more of a class than its capacity, where that is enforced.
package race

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/progress"
	"github.com/classbind/classbind/webhook"
)

// Race all rounds of a scenario, each of so many writers. The result is valid
// beside an error, too, which says that the race could not go on.
func (f *Fleet) Race(ctx context.Context, s Scenario, rounds, writers int) (Result, error) {
	ctx, cancel := context.WithCancel(ctx) // of the watches
	defer cancel()
	r := &report{progress: f.cluster.progress, scenario: s.Name, chaos: s.Chaos, of: rounds, start: time.Now(), capacity: s.Capacity}
	f.path = v1beta1.GuardPath
	if s.Capacity {
		f.path = webhook.CheckPattern
	}
	var lanes []*lane
	for i := range s.Lanes {
		lanes = append(lanes, newLane(f.cluster, s, i))
	}
	err := progress.During(f.cluster.progress, s.Name+": registering kinds, until all are guarded", func() error {
		if s.Capacity {
			return f.prepareArenas(ctx, lanes)
		}
		return f.prepare(ctx, s, lanes, writers)
	})
	if err == nil {
		err = f.race(ctx, s, lanes, rounds, writers, r)
	}
	f.failed = f.failed || err != nil && ctx.Err() == nil || r.result.Violations > 0
	return r.result, err
}

// prepare registers the lanes' kinds, begins to watch them, and waits until they are guarded.
func (f *Fleet) prepare(ctx context.Context, s Scenario, lanes []*lane, writers int) error {
	var manifest strings.Builder
	for _, l := range lanes {
		manifest.WriteString(l.definitions())
		manifest.WriteString(l.registrations())
	}
	if _, _, err := f.cluster.Kubectl(ctx, strings.NewReader(manifest.String()), "apply", "-f", "-"); err != nil {
		return err
	}
	for _, l := range lanes {
		if err := l.awaitGuard(ctx, len(f.replicas)); err != nil {
			return err
		}
		if err := l.watch(ctx); err != nil {
			return err
		}
		if err := l.setUp(ctx, writers); err != nil {
			return err
		}
		if l.chaos {
			if err := l.setUpChaos(ctx); err != nil {
				return err
			}
		}
		if s.Partitions {
			if err := l.setUpPartitions(ctx); err != nil {
				return err
			}
		}
		if s.Twins {
			if err := l.setUpTwins(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// race all rounds, and say in a line what came of them.
func (f *Fleet) race(parent context.Context, scenario Scenario, lanes []*lane, rounds, writers int, r *report) error {
	before, err := f.calls(parent)
	if err != nil {
		return err
	}
	racing, stopDisturbing := context.WithCancel(parent)
	defer stopDisturbing()
	disturbances, err := f.disturb(racing, scenario, lanes, r)
	if err != nil {
		return err
	}

	r.start = time.Now()
	endTicking := progress.Ticking(r.tick)
	var number atomic.Int64
	all, ctx := errgroup.WithContext(parent)
	for _, l := range lanes {
		all.Go(func() error {
			round := l.round
			switch {
			case scenario.Capacity:
				round = l.arena.round
			case r.chaos:
				round = l.chaosRound
			case scenario.Twins:
				round = l.twinsRound
			case scenario.Partitions:
				round = l.partitionsRound
			}
			for n := int(number.Add(1)); n <= rounds; n = int(number.Add(1)) {
				if err := round(ctx, n, writers, r); err != nil {
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
	if scenario.Capacity {
		for _, l := range lanes {
			if err := l.arena.settle(parent, rounds, r); err != nil {
				return err
			}
		}
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
func (f *Fleet) disturb(ctx context.Context, scenario Scenario, lanes []*lane, r *report) (*errgroup.Group, error) {
	var all errgroup.Group
	if scenario.Chaos {
		sabotage, longest := f.cluster.sabotage, 2*time.Second
		if scenario.Capacity {
			sabotage, longest = f.cluster.obstruct, arenaPause
			for _, l := range lanes {
				all.Go(func() error { return l.arena.administer(ctx) })
			}
		}
		stop, err := sabotage(ctx, lanes)
		if err != nil {
			return nil, err
		}
		all.Go(func() error { return killing(ctx, f, longest, r) })
		all.Go(func() error {
			<-ctx.Done()
			return stop()
		})
	}
	if scenario.Forger {
		for range forgers {
			all.Go(func() error { return f.forge(ctx, lanes, r) })
		}
	}
	return &all, nil
}
