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

// The twin serves the first and the last claim kind, the class in its way the last
// alone, and the next default the first alone.
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

// twinsRound has several clients mark one class that serves two claim kinds, of
// which one has a default, or gets one at the same time. Whoever of them is
// refused, the next default of the other claim kind must not have to wait.
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
	if err := l.replay(ctx, number, r); err != nil {
		return err
	}
	l.mu.Lock()
	been := l.judge.Been()
	l.mu.Unlock()
	for _, a := range answers {
		o := outcomeOf(a.err, a.class, been)
		r.outcome(o)
		if o != Overtaken && (o.inChaosOnly() || o == NamedNothing || o == Unexpected) { // One twin may overtake the other.
			r.violation("%s, round %d: %s was %s: %v", l.group, number, a.class, o, a.err)
		}
	}
	for _, c := range []Class{l.twin(), l.held()} {
		if err := l.undefault(ctx, c); err != nil {
			return err
		}
	}
	start := time.Now()
	next := l.ask(ctx, write{l.next(), patched})
	r.outcome(outcomeOf(next.err, next.class, been))
	if next.err != nil {
		r.violation("%s, round %d: the next default has to wait for what the guard refused: %v", l.group, number, next.err)
	}
	r.waited(time.Since(start))
	if err := l.replay(ctx, number, r); err != nil {
		return err
	}
	return l.undefault(ctx, l.next())
}
