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

// setUp makes what every round needs: the fences, and for half of the writers a class to update.
func (l *lane) setUp(ctx context.Context, writers int) error {
	for kind := range l.kinds {
		if err := l.create(ctx, Class{kind, fenceName}); err != nil {
			return err
		}
	}
	for i := range writers / 2 {
		if err := l.create(ctx, l.updatable(i)); err != nil {
			return err
		}
	}
	return nil
}

// round of writers that create a class as default or update one to be it.
func (l *lane) round(ctx context.Context, number, writers int, r *report) error {
	var writes []write
	for i := range writers / 2 {
		do := patched
		if (number+i)%2 == 0 {
			do = updated
		}
		writes = append(writes, write{l.updatable(i), do})
	}
	for i := range writers - writers/2 {
		kind := l.kind(number + i)
		writes = append(writes, write{Class{kind, fmt.Sprintf("r%d-%d", number, i)}, created})
	}
	return l.raceRound(ctx, number, writes, r)
}

// raceRound has all writes done at once, and ends with no default. The classes that it creates are deleted after the next round.
func (l *lane) raceRound(ctx context.Context, number int, writes []write, r *report) error {
	answers := l.burst(ctx, writes)
	defaults, err := l.settle(ctx, number, answers, r)
	if err != nil {
		return err
	}
	if len(defaults) == 0 && !l.forger { // Who holds the seat for as long as a window.
		r.violation("%s, round %d: nothing became default", l.group, number)
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
func (l *lane) settle(ctx context.Context, number int, answers []answer, r *report) ([]Class, error) {
	if err := l.replay(ctx, number, r); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	been := l.judge.Been()
	for _, a := range answers {
		o := outcomeOf(a.err, a.class, been)
		r.count(func() { r.tally[o]++ })
		if o == NamedNothing || o == Unexpected || o.inChaosOnly() && !l.chaos && !l.forger && (o != Overtaken || !l.overtakes) {
			r.violation("%s, round %d: %s was %s: %v", l.group, number, a.class, o, a.err)
		}
	}
	all := map[Class]bool{}
	for _, claimKind := range l.kinds.claimKinds() {
		for _, c := range l.judge.Defaults(claimKind) {
			all[c] = true
		}
	}
	return slices.Collect(maps.Keys(all)), nil
}

// replay all that happened up to now.
func (l *lane) replay(ctx context.Context, number int, r *report) error {
	version, err := l.fence(ctx, l.kinds.names(), l.classes)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.judge.Until(version) {
		r.double("%s, round %d: %s became a second default for %q, partition %q, beside %s at resourceVersion %d",
			l.group, number, d.Class, d.ClaimKind, d.Partition, d.Other, d.Version)
	}
	return nil
}
