package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// target is a webhook, and how it is driven.
type target struct {
	// url is https://host:port, path what follows for a claim kind.
	url  string
	path func(claimKind string) string
	tls  *tls.Config
	// process whose CPU counts.
	process *process

	// inFlight are the requests that it has in a closed loop.
	inFlight int
	reviews  []poolClaim
}

// round is what came of driving a target for a while.
type round struct {
	Requests        int
	Took            time.Duration
	P50, P99, Worst time.Duration
	// CPU of the server's process.
	CPU time.Duration
}

func (r round) perSecond() float64 { return float64(r.Requests) / r.Took.Seconds() }
func (r round) cpuMicros() float64 { return micros(r.CPU) / float64(r.Requests) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// openInFlight are the requests that a target has at most in an open loop: far more
// than there are but where it answers none for a while.
const openInFlight = 32

// connect opens as many connections as there may be requests in flight, with a
// request on each, so that all that comes once is behind them.
func (t *target) connect(ctx context.Context, inFlight int) (*client, error) {
	c := newClient(t.url, t.tls, inFlight)
	all, ctx := errgroup.WithContext(ctx)
	for i := range inFlight {
		all.Go(func() error { return t.bind(ctx, c, i) })
	}
	if err := all.Wait(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

var allowed, patched = []byte(`"allowed":true`), []byte(`"patch":"`)

// bind posts one of the reviews, the answer to which is to have a patch.
func (t *target) bind(ctx context.Context, c *client, i int) error {
	review := t.reviews[i%len(t.reviews)]
	body, err := c.Post(ctx, t.path(review.claimKind), review.body)
	if err != nil {
		return fmt.Errorf("cannot ask for a class: %w", err)
	}
	if !bytes.Contains(body, allowed) || !bytes.Contains(body, patched) {
		return fmt.Errorf("the claim is not bound: %s", body)
	}
	return nil
}

// drive for so long, with one request in flight after the other (closed loop), or
// with so many each second, whatever becomes of those before, whose latency counts
// from when they are due (open loop).
func (t *target) drive(ctx context.Context, d time.Duration, perSecond int) (round, error) {
	inFlight, interval := t.inFlight, time.Duration(0)
	if perSecond > 0 {
		inFlight, interval = openInFlight, time.Second/time.Duration(perSecond)
	}
	c, err := t.connect(ctx, inFlight)
	if err != nil {
		return round{}, err
	}
	defer c.Close()
	l := &loop{target: t, client: c, interval: interval, took: make([][]time.Duration, inFlight)}
	for i := range l.took {
		l.took[i] = make([]time.Duration, 0, 1<<14)
	}

	cpu, err := t.process.cpu()
	if err != nil {
		return round{}, err
	}
	l.begin = time.Now()
	l.end = l.begin.Add(d)
	all, driving := errgroup.WithContext(ctx)
	for i := range l.took {
		all.Go(func() error { return l.run(driving, i) })
	}
	if err := all.Wait(); err != nil {
		return round{}, err
	}
	r := round{Took: time.Since(l.begin)}
	after, err := t.process.cpu()
	if err != nil {
		return round{}, err
	}
	r.CPU = after - cpu
	took := slices.Concat(l.took...)
	slices.Sort(took)
	r.Requests, r.P50, r.P99, r.Worst = len(took), quantile(took, .5), quantile(took, .99), quantile(took, 1)
	if r.Requests == 0 {
		return r, fmt.Errorf("no request was answered within %s", d)
	}
	return r, nil
}

// loop is a drive under way.
type loop struct {
	target     *target
	client     *client
	begin, end time.Time
	interval   time.Duration // 0 in a closed loop
	next       atomic.Int64
	took       [][]time.Duration // by worker
}

// run until the end, as the i-th worker, which has one request in flight.
func (l *loop) run(ctx context.Context, i int) error {
	for {
		n := l.next.Add(1) - 1
		begin := time.Now()
		if l.interval > 0 {
			begin = l.begin.Add(time.Duration(n) * l.interval)
		}
		if !begin.Before(l.end) {
			return nil
		}
		if l.interval > 0 {
			sleep(ctx, time.Until(begin))
		}
		if err := l.target.bind(ctx, l.client, int(n)); err != nil {
			return err
		}
		l.took[i] = append(l.took[i], time.Since(begin))
	}
}
