package bench

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// stormers change classes at once: as many as it takes for the API server to
	// answer while the load keeps all processors busy.
	stormers = 64
	// stormed is how many classes a storm changes in turn.
	stormed = 1000
	// gathering is how long a storm blows before it is measured.
	gathering = 500 * time.Millisecond
)

// Storm is what claims feel of classes that change all the time.
type Storm struct {
	// Wanted is how many classes were to change in a second.
	Wanted int `json:"wantedPerSecond"`
	// Quiet is without any change, Elsewhere with changes to classes of a kind that
	// nobody registered, and Here to those of all kinds that are. What Here has
	// more than Elsewhere is classbind's; the rest is that of the API server and
	// of whoever changes classes, on the same processors.
	Quiet     Stormed `json:"quiet"`
	Elsewhere Stormed `json:"elsewhere"`
	Here      Stormed `json:"here"`
	// P99Ratio is that of Here to Elsewhere, P99RatioToQuiet that to Quiet: medians
	// of those of rounds that were next to each other.
	P99Ratio        float64 `json:"p99Ratio"`
	P99RatioToQuiet float64 `json:"p99RatioToQuiet"`
}

// Stormed is what claims took beside changes, of which there were so many.
type Stormed struct {
	ChangesPerSecond float64 `json:"changesPerSecond"`
	Served
}

// storm drives classbind without and with changes of classes.
func (m *many) storm(ctx context.Context) (*Storm, error) {
	n := min(stormed, m.settings.Classes)
	err := m.fill(ctx, 0, n, func(i int) class {
		return class{kind: freeClass, name: className(i), labels: map[string]string{"storm": "0"}}
	})
	if err != nil {
		return nil, err
	}
	t := m.bound()
	kinds := []struct {
		name string
		kind func(i int) string // of the i-th class
	}{
		{"quiet", nil},
		{"elsewhere", func(int) string { return freeClass }},
		{"here", func(i int) string { return pooled(i, m.kinds.classes, m.settings.Matches).kind }},
	}
	rounds, changes := make([][]round, len(kinds)), make([][]float64, len(kinds))
	for number := range m.settings.Rounds + 1 {
		for i := range kinds {
			if number%2 == 1 {
				i = len(kinds) - 1 - i
			}
			r, rate, err := m.stormRound(ctx, t, n, kinds[i].kind)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kinds[i].name, err)
			}
			_, _ = fmt.Fprintf(m.progress, "  storm: round %d of %d, %-9s %4.0f changes/s, %6.0f claims/s, p50 %.2f ms, p99 %.2f ms\n",
				number, m.settings.Rounds, kinds[i].name, rate, r.perSecond(), millis(r.P50), millis(r.P99))
			if number > 0 {
				rounds[i], changes[i] = append(rounds[i], r), append(changes[i], rate)
			}
		}
	}
	s := &Storm{Wanted: m.settings.Changes}
	for i, to := range []*Stormed{&s.Quiet, &s.Elsewhere, &s.Here} {
		to.ChangesPerSecond = median(changes[i])
		if to.Served, err = served(t.process, rounds[i]); err != nil {
			return nil, err
		}
	}
	p99 := func(r round) float64 { return millis(r.P99) }
	s.P99Ratio, s.P99RatioToQuiet = ratio(rounds[2], rounds[1], p99), ratio(rounds[2], rounds[0], p99)
	return s, nil
}

// stormRound is one beside changes to n classes in turn, or to none without kinds
// of theirs, and says how many there were in a second.
func (m *many) stormRound(ctx context.Context, t *target, n int, kind func(i int) string) (round, float64, error) {
	if kind == nil {
		r, err := t.drive(ctx, m.settings.Round, 0)
		return r, 0, err
	}
	g := &gale{begin: time.Now(), interval: time.Second / time.Duration(m.settings.Changes), calm: make(chan struct{})}
	all, blowing := errgroup.WithContext(ctx)
	for range stormers {
		all.Go(func() error {
			return g.blow(blowing, func(i int) error {
				return m.label(blowing, kind(i%n), className(i%n), "storm", strconv.FormatInt(g.begin.UnixNano()+int64(i), 10))
			})
		})
	}
	sleep(blowing, gathering)
	before, from := g.done.Load(), time.Now()
	r, err := t.drive(blowing, m.settings.Round, 0)
	rate := float64(g.done.Load()-before) / time.Since(from).Seconds()
	close(g.calm)
	// What became of the changes is why the drive ended, if it did.
	return r, rate, cmp.Or(all.Wait(), err)
}

// gale is what changes classes, in an open loop.
type gale struct {
	begin      time.Time
	interval   time.Duration
	next, done atomic.Int64
	calm       chan struct{}
}

// blow until it is calm.
func (g *gale) blow(ctx context.Context, change func(i int) error) error {
	for {
		i := g.next.Add(1) - 1
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.calm:
			return nil
		case <-time.After(time.Until(g.begin.Add(time.Duration(i) * g.interval))):
		}
		if err := change(int(i)); err != nil {
			return err
		}
		g.done.Add(1)
	}
}
