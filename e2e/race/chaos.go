package race

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// slack is what the next default may take beyond the window: until it is tried
	// again, and the time that a write takes with a second webhook.
	slack = 2 * time.Second
	// tryAgain is how often the next default is tried.
	tryAgain = 250 * time.Millisecond
	// stuck is when a claim kind that gets no default is given up.
	stuck = time.Minute
)

// nextName is of the class of a kind that is to be default where no other became it.
const nextName = "next"

// chaosRound is a round under the same names as that before, with classes that
// come and go while they are written. At its end every claim kind has a default.
func (l *lane) chaosRound(ctx context.Context, writers int) error {
	writes := l.chaosWrites(writers)
	var disturbances errgroup.Group
	for range 2 {
		disturbances.Go(func() error {
			pauseUpTo(ctx, 200*time.Millisecond)
			return l.replace(ctx, anyOf(writes).class)
		})
	}
	answers := l.burst(ctx, writes)
	if err := disturbances.Wait(); err != nil {
		return err
	}
	if _, err := l.settle(ctx, answers); err != nil {
		return err
	}
	answers, err := l.nextDefaults(ctx)
	if err != nil {
		return err
	}
	defaults, err := l.settle(ctx, answers)
	if err != nil {
		return err
	}
	for _, claimKind := range l.kinds.claimKinds() {
		if !l.hasDefault(claimKind) {
			l.violation("the default that was accepted for %q is not there", claimKind)
		}
	}
	for _, c := range defaults {
		end := l.undefault
		if oneIn(2) {
			end = l.replace
		}
		if err := end(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// chaosWrites has one half of the writers update a class and the other half create one. Each write may be late.
func (l *lane) chaosWrites(writers int) []write {
	var writes []write
	for i := range writers {
		class, ways := l.updatable(i), []way{patched, updated}
		if i >= writers/2 {
			class, ways = Class{l.kind(i), fmt.Sprint("c-", i)}, []way{created, recreated}
		}
		do := anyOf(ways)
		if oneIn(2) {
			do = late(do)
		}
		writes = append(writes, write{class, do})
	}
	return writes
}

// replace a class by another of its name, or by none if it is one of those that are created in every round.
func (l *lane) replace(ctx context.Context, c Class) error {
	if err := l.delete(ctx, c); err != nil || strings.HasPrefix(c.Name, "c-") {
		return err
	}
	return l.create(ctx, c)
}

func (l *lane) hasDefault(claimKind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, defaults := range l.judge.defaults {
		if s.claimKind == claimKind && defaults > 0 {
			return true
		}
	}
	return false
}

// nextDefaults gives a default to every claim kind that has none.
func (l *lane) nextDefaults(ctx context.Context) ([]answer, error) {
	answers := make([][]answer, len(l.kinds.claimKinds()))
	var all errgroup.Group
	for i, claimKind := range l.kinds.claimKinds() {
		if l.hasDefault(claimKind) {
			continue
		}
		all.Go(func() (err error) {
			answers[i], err = l.nextDefault(ctx, claimKind)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(answers...), nil
}

// nextDefault tries until the claim kind has a default, which is to be accepted
// within the window after the last write that the guard may have admitted.
func (l *lane) nextDefault(ctx context.Context, claimKind string) ([]answer, error) {
	class := Class{l.kinds.servingOnly(claimKind), nextName}
	start := time.Now()
	var answers []answer
	for {
		l.mu.Lock()
		since := l.maybeAdmitted[claimKind]
		l.mu.Unlock()
		a := l.ask(ctx, write{class, patched})
		answers = append(answers, a)
		took := time.Since(since)
		switch outcomeOf(a.err, a.class, nil) {
		case Accepted:
			l.count(func() { l.waits, l.longest = l.waits+1, max(l.longest, took) })
			if took > 2*l.scenario.Timing.Window+slack { // A replica that was started meanwhile counts the window from then.
				l.violation("the next default for %q was accepted %s after the last write that may have been admitted", claimKind, took)
			}
			return answers, nil
		case NamedTime:
		case Overtaken:
			if err := l.create(ctx, class); err != nil {
				return nil, err
			}
		default: // What got no answer in the burst may have been stored after it.
			if err := l.replay(ctx); err != nil || l.hasDefault(claimKind) {
				return answers, err
			}
		}
		if time.Since(start) > stuck {
			l.violation("%q gets no default", claimKind)
			return nil, fmt.Errorf("%s: %q is stuck: %w", l.group, claimKind, a.err)
		}
		pause(ctx, tryAgain)
	}
}

// pause until the time has passed or the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
