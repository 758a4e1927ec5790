package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/load"
)

// target is a webhook, and how it is driven.
type target struct {
	url string // https://host:port
	tls *tls.Config
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
func (r round) p99Millis() float64 { return millis(r.P99) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// openInFlight are the requests that a target has at most in an open loop: far more than there are but where it answers none for a while.
const openInFlight = 32

// connect as kube-apiserver does to a webhook behind a Service: over TLS and HTTP/1.1, with a connection for each request in flight, which
// is kept and used again, the last one first. net/http does that in kube-apiserver, too.
func (t *target) connect(inFlight int) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: t.tls, Protocols: protocols, MaxConnsPerHost: inFlight, MaxIdleConnsPerHost: inFlight},
		Timeout:   patience,
	}
}

// post the i-th review with the headers of kube-apiserver. An answer other than 200 is an error.
func (t *target) post(ctx context.Context, c *http.Client, i int) ([]byte, error) {
	review := t.reviews[i%len(t.reviews)]
	// With the time that kube-apiserver adds to the path.
	url := fmt.Sprintf("%s%s%s?timeout=%ds", t.url, v1beta1.BindPath, review.claimKind, v1beta1.WebhookTimeoutSeconds)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(review.body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "kube-apiserver-admission")
	response, err := c.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for a class: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", response.Status, answer)
	}
	return answer, err
}

var allowed, patched = []byte(`"allowed":true`), []byte(`"patch":"`)

// bind posts one of the reviews, the answer to which is to have a patch.
func (t *target) bind(ctx context.Context, c *http.Client, i int) error {
	body, err := t.post(ctx, c, i)
	if err == nil && (!bytes.Contains(body, allowed) || !bytes.Contains(body, patched)) {
		err = fmt.Errorf("the claim is not bound: %s", body)
	}
	return err
}

// drive for so long, with one request in flight after the other (closed loop), or with so many each second, whatever becomes of those
// before, whose latency counts from when they are due (open loop).
func (t *target) drive(ctx context.Context, d time.Duration, perSecond int) (round, error) {
	inFlight, interval := t.inFlight, time.Duration(0)
	if perSecond > 0 {
		inFlight, interval = openInFlight, time.Second/time.Duration(perSecond)
	}
	c := t.connect(inFlight)
	defer c.CloseIdleConnections()
	// A request on each connection, so that all that comes once is behind them.
	first, connecting := errgroup.WithContext(ctx)
	for i := range inFlight {
		first.Go(func() error { return t.bind(connecting, c, i) })
	}
	if err := first.Wait(); err != nil {
		return round{}, err
	}
	l := &loop{target: t, client: c, interval: interval, took: make([][]time.Duration, inFlight)}
	for i := range l.took {
		l.took[i] = make([]time.Duration, 0, 1<<14)
	}
	r := round{}
	var err error
	r.CPU, err = t.process.cpuOf(func() error {
		l.begin = time.Now()
		l.end = l.begin.Add(d)
		all, driving := errgroup.WithContext(ctx)
		for i := range l.took {
			all.Go(func() error { return l.run(driving, i) })
		}
		err := all.Wait()
		r.Took = time.Since(l.begin)
		return err
	})
	if err != nil {
		return round{}, err
	}
	took := slices.Concat(l.took...)
	slices.Sort(took)
	r.Requests, r.P50, r.P99, r.Worst = len(took), load.Quantile(took, .5), load.Quantile(took, .99), load.Quantile(took, 1)
	if r.Requests == 0 {
		return r, fmt.Errorf("no request was answered within %s", d)
	}
	return r, nil
}

// loop is a drive under way.
type loop struct {
	target     *target
	client     *http.Client
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
