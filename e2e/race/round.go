package race

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// kind by number; they take turns.
func (l *lane) kind(i int) string {
	names := l.kinds.names()
	return names[i%len(names)]
}

// updatable is one of the classes that are there all along.
func (l *lane) updatable(i int) Class {
	return Class{l.kind(i), fmt.Sprint("u-", i)}
}

// standing are the classes that are there all along: the fences, for half of the writers a class to update, and the next defaults.
func (l *lane) standing(writers int) (all []Class) {
	for _, kind := range l.kinds.names() {
		all = append(all, Class{kind, fenceName})
	}
	for i := range writers / 2 {
		all = append(all, l.updatable(i))
	}
	if l.scenario.Chaos {
		for _, claimKind := range l.kinds.claimKinds() {
			all = append(all, Class{l.kinds.servingOnly(claimKind), nextName})
		}
	}
	if l.scenario.Twins {
		all = append(all, twin, held, next)
	}
	return all
}

// round of writers that create a class as default or update one to be it.
func (l *lane) round(ctx context.Context, writers int) error {
	var writes []write
	for i := range writers / 2 {
		do := patched
		if (l.number+i)%2 == 0 {
			do = updated
		}
		writes = append(writes, write{l.updatable(i), do})
	}
	for i := range writers - writers/2 {
		kind := l.kind(l.number + i)
		writes = append(writes, write{Class{kind, fmt.Sprintf("r%d-%d", l.number, i)}, created})
	}
	return l.raceRound(ctx, writes)
}

// raceRound has all writes done at once, and ends with no default. The classes that it creates are deleted after the next round.
func (l *lane) raceRound(ctx context.Context, writes []write) error {
	answers := l.burst(ctx, writes)
	defaults, err := l.settle(ctx, answers)
	if err != nil {
		return err
	}
	if len(defaults) == 0 && !l.scenario.Forger { // Who holds the seat for as long as a window.
		l.violation("nothing became default")
	}
	for _, c := range defaults {
		if err := l.undefault(ctx, c); err != nil {
			return err
		}
	}
	for _, c := range l.behind {
		if err := l.delete(ctx, c); err != nil {
			return err
		}
	}
	l.behind = nil
	for i, w := range writes {
		if answers[i].err == nil && strings.HasPrefix(w.class.Name, "r") {
			l.behind = append(l.behind, w.class)
		}
	}
	return nil
}

// burst asks for all the writes at once.
func (l *lane) burst(ctx context.Context, writes []write) []answer {
	answers := make([]answer, len(writes))
	var all sync.WaitGroup
	for i, w := range writes {
		all.Go(func() { answers[i] = l.ask(ctx, w) })
	}
	all.Wait()
	return answers
}

// settle judges all that happened up to now, and the answers to this round's writes, and returns what is default.
func (l *lane) settle(ctx context.Context, answers []answer) ([]Class, error) {
	if err := l.replay(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range answers {
		o := outcomeOf(a.err, a.class, l.judge.been)
		l.count(func() { l.tally[o]++ })
		overtaken := o == Overtaken && (l.scenario.Partitions || l.scenario.Twins) // Writers of one round may write one class.
		if o == NamedNothing || o == Unexpected || o.inChaosOnly() && !overtaken && !l.scenario.Chaos && !l.scenario.Forger {
			l.violation("%s was %s: %v", a.class, o, a.err)
		}
	}
	l.judge.been = map[Class]bool{}
	for c := range l.judge.seats {
		l.judge.been[c] = true
	}
	return slices.Collect(maps.Keys(l.judge.seats)), nil
}

// replay all that happened up to now.
func (l *lane) replay(ctx context.Context) error {
	version, err := l.fence(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.judge.until(version) {
		l.count(func() { l.result.Doubles++ })
		l.violation("double default: %s became a second default for %q, partition %q, at resourceVersion %d",
			d.class, d.seat.claimKind, d.seat.partition, d.version)
	}
	return nil
}
