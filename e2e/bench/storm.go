package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/classbind/classbind/e2e/controlplane/etcdclient"
)

const (
	// stormed is how many classes a storm changes in turn, and gust how many of them in one transaction.
	stormed, gust = 1000, 10
	// gathering is how long a storm blows before it is measured.
	gathering = 500 * time.Millisecond
	// marker stands in a class for what changes.
	marker = "-storm-"
)

// measureStorm drives classbind at a steady rate, which leaves time for changes: without any change; with changes to classes of all kinds
// that are registered; and with as many to as many kinds that are not; each is watched, and what comes is discarded. So etcd and
// the API server do the same for both, on the same processors. What the changes of registered kinds have more is classbind's.
func (r *run) measureStorm(ctx context.Context) (err error) {
	if err := r.fill(ctx, min(stormed, r.classes), r.freeKindNames()); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	watches, watching := errgroup.WithContext(watching)
	defer func() {
		stop()
		err = errors.Join(err, watches.Wait())
	}()
	for _, kind := range r.freeKindNames() {
		watches.Go(func() error { return r.discard(watching, kind) })
	}
	etcd, err := etcdclient.New(r.EtcdURL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	steady := func(ctx context.Context) (round, error) { return r.classbind.drive(ctx, r.Round, r.claims) }
	in := func(name string, kinds []string) *contender {
		g := &gale{etcd: etcd, perSecond: r.changes}
		for i := range min(stormed, r.classes) {
			c := r.class(i, kinds)
			c.labels["storm"] = marker
			g.keys, g.templates = append(g.keys, c.key()), append(g.templates, c.stored())
		}
		return &contender{name: name, drive: func(ctx context.Context) (round, error) { return g.during(ctx, steady) }}
	}
	quiet := &contender{name: "no changes", drive: steady}
	elsewhere, here := in("changes of kinds that others watch", r.freeKindNames()), in("changes of the claims' classes", r.classKindNames())
	what := fmt.Sprintf("storm: %d reviews a second while classes change, %d a second: the API server learns it from etcd",
		r.claims, r.changes)
	if err := r.compare(watching, what, quiet, elsewhere, here); err != nil {
		return err
	}
	r.measureRatio("storm", here, elsewhere, p99Millis)
	return nil
}

// discard what a watch of a kind sends, until the context ends.
func (r *run) discard(ctx context.Context, kind string) error {
	events, err := r.client.Get().Resource(plural(kind)).Param("watch", "true").Stream(ctx)
	if err == nil {
		_, err = io.Copy(io.Discard, events)
		err = errors.Join(err, events.Close())
	}
	if ctx.Err() == nil {
		return cmp.Or(err, fmt.Errorf("the watch of %s has ended", kind))
	}
	return nil
}

// gale changes a label of classes. It writes to etcd itself: the API server learns it as it does of what another API server writes:
// two cores do not let a thousand writes a second through this one beside claims.
type gale struct {
	etcd      *clientv3.Client
	keys      []string
	templates []string // of the classes, with the marker
	perSecond int
	changes   atomic.Int64
}

// during a round, the gale blows. The round has how many changes there were in a second.
func (g *gale) during(ctx context.Context, drive func(context.Context) (round, error)) (round, error) {
	calm := make(chan struct{})
	all, blowing := errgroup.WithContext(ctx)
	all.Go(func() error { return g.blow(blowing, calm) })
	sleep(blowing, gathering)
	before, from := g.changes.Load(), time.Now()
	r, err := drive(blowing)
	r.changes = float64(g.changes.Load()-before) / time.Since(from).Seconds()
	close(calm)
	// What became of the changes is why the drive ended, if it did.
	return r, cmp.Or(all.Wait(), err)
}

// blow so many changes a second, in an open loop, until it is calm.
func (g *gale) blow(ctx context.Context, calm <-chan struct{}) error {
	begin := time.Now()
	for n := 0; ; n += gust {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-calm:
			return nil
		case <-time.After(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(g.perSecond)))):
		}
		var puts []clientv3.Op
		for i := range gust {
			at := (n + i) % len(g.keys)
			value := strconv.FormatInt(begin.UnixNano()+int64(n), 10) // No class has had it.
			puts = append(puts, clientv3.OpPut(g.keys[at], strings.Replace(g.templates[at], marker, value, 1)))
		}
		if _, err := g.etcd.Txn(ctx).Then(puts...).Commit(); err != nil {
			return fmt.Errorf("cannot change classes: %w", err)
		}
		g.changes.Add(gust)
	}
}
