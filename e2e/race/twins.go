package race

import (
	"context"
	"time"
)

const (
	// twins are so many clients that make one class default at once.
	twins = 4
	// twinName is of that class, and heldName of the one that is mostly in its way.
	twinName, heldName = "twin", "held"
)

// setUpTwins adds to setUp what its rounds need.
func (l *lane) setUpTwins(ctx context.Context) error {
	for _, c := range []Class{l.twin(), l.held(), l.next()} {
		if err := l.create(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// The twin serves the first and the last claim kind, the class in its way the last alone, and the next default the first alone.
func (l *lane) twin() Class {
	for _, name := range l.kinds.names() {
		if len(l.kinds[name]) > 1 {
			return Class{name, twinName}
		}
	}
	panic("no kind serves two claim kinds")
}

func (l *lane) held() Class {
	all := l.kinds.claimKinds()
	return Class{l.kinds.servingOnly(all[len(all)-1]), heldName}
}

func (l *lane) next() Class { return Class{l.kinds.servingOnly(l.kinds.claimKinds()[0]), nextName} }

// twinsRound has several clients mark one class that serves two claim kinds, of which one has a default, or gets one at the same time.
// Whoever of them is refused, the next default of the other claim kind must not have to wait.
func (l *lane) twinsRound(ctx context.Context, number, _ int, r *report) error {
	var writes []write
	for range twins {
		writes = append(writes, write{l.twin(), patched})
	}
	held := write{l.held(), patched}
	if oneIn(2) {
		writes = append(writes, held)
	} else if a := l.ask(ctx, held); a.err != nil {
		r.violation("%s, round %d: %s could not become default: %v", l.group, number, held.class, a.err)
	}
	answers := l.burst(ctx, writes)
	if _, err := l.settle(ctx, number, answers, r); err != nil {
		return err
	}
	for _, c := range []Class{l.twin(), l.held()} {
		if err := l.undefault(ctx, c); err != nil {
			return err
		}
	}
	start := time.Now()
	next := l.ask(ctx, write{l.next(), patched})
	took := time.Since(start)
	r.count(func() {
		r.tally[outcomeOf(next.err, next.class, nil)]++
		r.waits, r.longest = r.waits+1, max(r.longest, took)
	})
	if next.err != nil {
		r.violation("%s, round %d: the next default has to wait for what the guard refused: %v", l.group, number, next.err)
	}
	if err := l.replay(ctx, number, r); err != nil {
		return err
	}
	return l.undefault(ctx, l.next())
}
