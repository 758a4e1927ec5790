package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// slack is how much longer than planned a round may take: a machine with other
// things to do now and then forgets a process for many seconds, and that is one
// round of several.
const slack = patience

// target is a webhook, and how it is driven.
type target struct {
	// url is https://host:port, path what follows for a claim kind.
	url  string
	path func(claimKind string) string
	tls  *tls.Config
	// process whose CPU counts.
	process *process

	connections int
	reviews     []poolClaim
}

// round is what came of driving a target for a while.
type round struct {
	Requests        int
	Took            time.Duration
	P50, P99, Worst time.Duration
	// CPU of the server's process, and of the load.
	CPU, LoadCPU time.Duration
}

func (r round) perSecond() float64     { return float64(r.Requests) / r.Took.Seconds() }
func (r round) cpuMicros() float64     { return micros(r.CPU) / float64(r.Requests) }
func (r round) loadCPUMicros() float64 { return micros(r.LoadCPU) / float64(r.Requests) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// address is the host:port of the target.
func (t *target) address() string { return strings.TrimPrefix(t.url, "https://") }

// dial so many connections, and send a request on each, so that all that comes
// once is behind them.
func (t *target) dial(ctx context.Context, n int) (_ []*connection, err error) {
	var connections []*connection
	defer func() {
		if err != nil {
			_ = closeAll(connections)
		}
	}()
	for i := range n {
		c, err := dial(ctx, t.address(), t.tls)
		if err != nil {
			return nil, err
		}
		connections = append(connections, c)
		if err := c.SetDeadline(time.Now().Add(slack)); err != nil {
			return nil, err
		}
		if err := t.bind(c, i); err != nil {
			return nil, err
		}
	}
	return connections, nil
}

func closeAll(connections []*connection) error {
	var errs []error
	for _, c := range connections {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

var allowed, patched = []byte(`"allowed":true`), []byte(`"patch":"`)

// bind posts one of the reviews, the answer to which is to have a patch.
func (t *target) bind(c *connection, i int) error {
	review := t.reviews[i%len(t.reviews)]
	body, err := c.Post(t.path(review.claimKind), review.body)
	if err != nil {
		return fmt.Errorf("cannot ask for a class: %w", err)
	}
	if !bytes.Contains(body, allowed) || !bytes.Contains(body, patched) {
		return fmt.Errorf("the claim is not bound: %s", body)
	}
	return nil
}

// drive for so long, with one request after the other on each connection
// (closed loop), or with so many each second, whatever becomes of those before,
// whose latency counts from when they are due (open loop).
func (t *target) drive(ctx context.Context, d time.Duration, perSecond int) (round, error) {
	connections, err := t.dial(ctx, t.connections)
	if err != nil {
		return round{}, err
	}
	defer func() { _ = closeAll(connections) }()
	l := &loop{target: t, took: make([][]time.Duration, len(connections))}
	for i := range connections {
		l.took[i] = make([]time.Duration, 0, 1<<16)
	}
	if perSecond > 0 {
		l.interval = time.Second / time.Duration(perSecond)
	}
	stopped := context.AfterFunc(ctx, func() { // A connection that is past its deadline ends its read.
		for _, c := range connections {
			_ = c.SetDeadline(time.Unix(1, 0))
		}
	})
	defer stopped()

	cpu, err := t.process.cpu()
	if err != nil {
		return round{}, err
	}
	own, err := ownCPU()
	if err != nil {
		return round{}, err
	}
	l.begin = time.Now()
	l.end = l.begin.Add(d)
	var all errgroup.Group
	for i, c := range connections {
		if err := c.SetDeadline(l.end.Add(slack)); err != nil {
			return round{}, err
		}
		all.Go(func() error { return l.run(i, c) })
	}
	if err := all.Wait(); err != nil {
		return round{}, errors.Join(err, ctx.Err())
	}
	r := round{Took: time.Since(l.begin)}
	after, err := t.process.cpu()
	if err != nil {
		return round{}, err
	}
	ownAfter, err := ownCPU()
	if err != nil {
		return round{}, err
	}
	r.CPU, r.LoadCPU = after-cpu, ownAfter-own
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
	begin, end time.Time
	interval   time.Duration // 0 in a closed loop
	next       atomic.Int64
	took       [][]time.Duration // by connection
}

// run until the end, on the i-th connection.
func (l *loop) run(i int, c *connection) error {
	for {
		n := l.next.Add(1) - 1
		begin := time.Now()
		if l.interval > 0 {
			begin = l.begin.Add(time.Duration(n) * l.interval)
		}
		if !begin.Before(l.end) {
			return nil
		}
		time.Sleep(time.Until(begin))
		if err := l.target.bind(c, int(n)); err != nil {
			return err
		}
		l.took[i] = append(l.took[i], time.Since(begin))
	}
}
