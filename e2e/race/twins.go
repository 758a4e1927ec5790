package race

import (
	"context"
	"time"
)

// twins are so many clients that make one class default at once.
const twins = 4

// Of threeForTwo, the twin serves both claim kinds, the class that is mostly in its way the second alone, and the next default the first.
var twin, held, next = Class{"B", "twin"}, Class{"C", "held"}, Class{"A", nextName}

// twinsRound has several clients mark one class that serves two claim kinds; one has a default, or gets one at the same time.
// Whichever is refused, the next default of the other claim kind must not have to wait.
func (l *lane) twinsRound(ctx context.Context, _ int) error {
	var writes []write
	for range twins {
		writes = append(writes, write{twin, patched})
	}
	if inTheWay := (write{held, patched}); oneIn(2) {
		writes = append(writes, inTheWay)
	} else if a := l.ask(ctx, inTheWay); a.err != nil {
		l.violation("%s could not become default: %v", held, a.err)
	}
	answers := l.burst(ctx, writes)
	if _, err := l.settle(ctx, answers); err != nil {
		return err
	}
	for _, c := range []Class{twin, held} {
		if err := l.undefault(ctx, c); err != nil {
			return err
		}
	}
	start := time.Now()
	a := l.ask(ctx, write{next, patched})
	took := time.Since(start)
	l.count(func() {
		l.tally[outcomeOf(a.err, next, nil)]++
		l.waits, l.longest = l.waits+1, max(l.longest, took)
	})
	if a.err != nil {
		l.violation("the next default has to wait for what the guard refused: %v", a.err)
	}
	if err := l.replay(ctx); err != nil {
		return err
	}
	return l.undefault(ctx, next)
}
