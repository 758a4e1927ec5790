package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/classbind/classbind/e2e/controlplane/etcdclient"
	"github.com/classbind/classbind/e2e/load"
)

const (
	// stormed is how many classes a storm changes in turn, and gust how many of them in one transaction, at most.
	stormed, gust = 1000, 10
	// gathering is how long a storm blows before it is measured.
	gathering = 500 * time.Millisecond
	// marker stands in a class for what changes.
	marker = "-storm-"
)

// Storm is what claims feel of classes that change all the time. They come at a
// steady rate, whatever becomes of those before, which leaves time for the changes.
type Storm struct {
	// Wanted is how many classes were to change in a second, and Claims how many claims came.
	Wanted int
	Claims int
	// Quiet is without any change; Here with changes to classes of all kinds that are registered; Elsewhere to as many of as many kinds
	// that are not, of which each is watched, and what comes is discarded. So etcd and the API server do the same Here and Elsewhere, on
	// the same processors; what Here has more is classbind's.
	Quiet     Stormed
	Elsewhere Stormed
	Here      Stormed
	// P99Ratio is that of Here to Elsewhere, P99RatioToQuiet that to Quiet: medians of those of rounds that were next to each other.
	P99Ratio        float64
	P99RatioToQuiet float64
}

// Stormed is what claims took beside changes, of which there were so many.
type Stormed struct {
	ChangesPerSecond float64
	Served
}

// storm drives classbind without and with changes of classes.
func (m *many) storm(ctx context.Context) (_ *Storm, err error) {
	n, free := min(stormed, m.settings.Classes), freeClasses(m.settings)
	if err := m.fill(ctx, 0, n, func(i int) class { return pooled(i, free, m.settings.Matches) }); err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	watches, watching := errgroup.WithContext(watching)
	defer func() {
		stop()
		err = errors.Join(err, watches.Wait())
	}()
	for _, kind := range free {
		watches.Go(func() error { return m.discard(watching, kind) })
	}
	etcd, err := etcdclient.New(m.EtcdURL())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	t := m.bound()
	quiet := &weather{name: "quiet"}
	elsewhere := &weather{name: "elsewhere", kinds: free}
	here := &weather{name: "here", kinds: m.kinds.classes}
	for _, w := range []*weather{elsewhere, here} {
		if w.gale, err = newGale(etcd, n, func(i int) class { return pooled(i, w.kinds, m.settings.Matches) }); err != nil {
			return nil, err
		}
	}
	all := []*weather{quiet, elsewhere, here}
	if err := m.stormRounds(watching, t, all); err != nil {
		return nil, err
	}
	s := &Storm{Wanted: m.settings.Changes, Claims: m.settings.Claims}
	for i, to := range []*Stormed{&s.Quiet, &s.Elsewhere, &s.Here} {
		to.ChangesPerSecond = load.Median(all[i].changes)
		if to.Served, err = served(t.process, all[i].rounds); err != nil {
			return nil, err
		}
	}
	s.P99Ratio = load.Ratio(here.rounds, elsewhere.rounds, round.p99Millis)
	s.P99RatioToQuiet = load.Ratio(here.rounds, quiet.rounds, round.p99Millis)
	return s, nil
}

// discard what a watch of a kind tells, until the context ends.
func (m *many) discard(ctx context.Context, kind string) error {
	events, err := m.client.Get().Resource(plural(kind)).Param("watch", "true").Stream(ctx)
	if err == nil {
		_, err = io.Copy(io.Discard, events)
		err = errors.Join(err, events.Close())
	}
	if ctx.Err() == nil {
		return cmp.Or(err, fmt.Errorf("the watch of %s has ended", kind))
	}
	return nil
}

// weather is the changes beside which claims are measured, and the rounds that were measured.
type weather struct {
	name    string
	kinds   []string // of the classes that change
	gale    *gale    // none in quiet weather
	rounds  []round
	changes []float64 // per second, by round
}

// stormRounds measures in all weathers.
func (m *many) stormRounds(ctx context.Context, t *target, all []*weather) error {
	return m.rounds(len(all), func(i, n int) error {
		w := all[i]
		r, rate, err := m.stormRound(ctx, t, w.gale)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		m.settings.say("  storm: round %d of %d, %-9s %4.0f changes/s, %6.0f claims/s, p50 %.2f ms, p99 %.2f ms\n",
			n, m.settings.Rounds, w.name, rate, r.perSecond(), millis(r.P50), millis(r.P99))
		if n > 0 {
			w.rounds, w.changes = append(w.rounds, r), append(w.changes, rate)
		}
		return nil
	})
}

// stormRound is one in a gale, or in none, and says how many changes there were in a second.
func (m *many) stormRound(ctx context.Context, t *target, g *gale) (round, float64, error) {
	if g == nil {
		r, err := t.drive(ctx, m.settings.Round, m.settings.Claims)
		return r, 0, err
	}
	calm := make(chan struct{})
	all, blowing := errgroup.WithContext(ctx)
	all.Go(func() error { return g.blow(blowing, m.settings.Changes, calm) })
	sleep(blowing, gathering)
	before, from := g.changes.Load(), time.Now()
	r, err := t.drive(blowing, m.settings.Round, m.settings.Claims)
	rate := float64(g.changes.Load()-before) / time.Since(from).Seconds()
	close(calm)
	// What became of the changes is why the drive ended, if it did.
	return r, rate, cmp.Or(all.Wait(), err)
}

// gale changes a label of classes. It writes to etcd itself, of which the API server learns as it does of what another API server writes:
// two cores do not let a thousand writes a second through this one beside claims.
type gale struct {
	etcd      *clientv3.Client
	keys      []string
	templates [][]byte // of the classes, with the marker
	changes   atomic.Int64
}

// newGale is for n classes.
func newGale(etcd *clientv3.Client, n int, class func(i int) class) (*gale, error) {
	g := &gale{etcd: etcd}
	for i := range n {
		c := class(i)
		c.labels["storm"] = marker
		template, err := c.stored()
		if err != nil {
			return nil, err
		}
		g.keys, g.templates = append(g.keys, c.key()), append(g.templates, template)
	}
	return g, nil
}

// blow so many changes a second, in an open loop, until it is calm.
func (g *gale) blow(ctx context.Context, perSecond int, calm <-chan struct{}) error {
	begin := time.Now()
	together := min(gust, len(g.keys)) // No key may be twice in one transaction.
	for n := 0; ; n += together {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-calm:
			return nil
		case <-time.After(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(perSecond)))):
		}
		puts := make([]clientv3.Op, together)
		for i := range puts {
			at := (n + i) % len(g.keys)
			value := strconv.FormatInt(begin.UnixNano()+int64(n), 10) // No class has had it.
			puts[i] = clientv3.OpPut(g.keys[at], string(bytes.Replace(g.templates[at], []byte(marker), []byte(value), 1)))
		}
		if _, err := g.etcd.Txn(ctx).Then(puts...).Commit(); err != nil {
			return fmt.Errorf("cannot change classes: %w", err)
		}
		g.changes.Add(int64(together))
	}
}
