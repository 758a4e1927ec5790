package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/load"
)

// openInFlight are the requests that a target has at most in an open loop: far more than there are but where it answers none for a while.
const openInFlight = 32

// target is a webhook, and how it is driven.
type target struct {
	name string
	url  string // https://host:port
	tls  *tls.Config
	pid  int // of the process whose CPU counts
	// inFlight are the requests that it has in a closed loop.
	inFlight int
	reviews  []review
}

// target of the reviews, which has a certificate of an authority in PEM.
func (r *run) target(name string, p *classbind.Process, ca []byte) (*target, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("there is no certificate of an authority")
	}
	return &target{
		name: name, url: p.URL, tls: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13}, pid: p.PID(),
		inFlight: r.Connections, reviews: reviews(r.claimKindNames(), r.classes/r.matches),
	}, nil
}

// round is what came of driving a target for a while.
type round struct {
	perSecond, p50Millis, p99Millis float64
	// cpuMicros of the server's process for a request.
	cpuMicros float64
	// changes of classes in a second meanwhile.
	changes float64
}

func (r round) row(name string) string {
	return fmt.Sprintf("%s|%.0f|%.2f|%.2f|%.0f|%.0f", name, r.perSecond, r.p50Millis, r.p99Millis, r.cpuMicros, r.changes)
}

// contender is what is compared with others: how it is driven, and the rounds that count.
type contender struct {
	name   string
	drive  func(context.Context) (round, error)
	rounds []round
}

// compare contenders in turn one way and the other, and print the medians of their rounds. The first of each warms it up.
func (r *run) compare(ctx context.Context, what string, all ...*contender) error {
	for n := range r.Rounds + 1 {
		for _, c := range all {
			of, err := c.drive(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if n > 0 {
				c.rounds = append(c.rounds, of)
			}
			_, _ = fmt.Fprintf(r.Progress, "  round %d of %d, %s: %.0f/s, p50 %.2f ms, p99 %.2f ms\n",
				n, r.Rounds, c.name, of.perSecond, of.p50Millis, of.p99Millis)
		}
		slices.Reverse(all)
	}
	if r.Rounds%2 == 0 { // They are reversed one time more than there are rounds.
		slices.Reverse(all)
	}
	rows := []string{"|requests/s|p50 ms|p99 ms|CPU µs|changes/s"}
	for _, c := range all {
		median := func(value func(round) float64) float64 { return load.MedianOf(c.rounds, value) }
		rows = append(rows, round{median(perSecond), median(p50Millis), median(p99Millis), median(cpuMicros), median(changes)}.row(c.name))
	}
	r.line("\n%s (medians of rounds)", what)
	r.table(rows...)
	return nil
}

func perSecond(r round) float64 { return r.perSecond }
func p50Millis(r round) float64 { return r.p50Millis }
func p99Millis(r round) float64 { return r.p99Millis }
func cpuMicros(r round) float64 { return r.cpuMicros }
func changes(r round) float64   { return r.changes }

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

var allowed, patched = []byte(`"allowed":true`), []byte(`"patch":"`)

// post the i-th review with the headers of kube-apiserver. An answer without a patch is an error.
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
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Contains(answer, allowed) || !bytes.Contains(answer, patched)) {
		err = fmt.Errorf("the claim is not bound: %s: %s", response.Status, answer)
	}
	return answer, err
}

// ask posts the i-th review and reads the answer.
func (t *target) ask(ctx context.Context, i int) (*admissionv1.AdmissionResponse, error) {
	c := t.connect(1)
	defer c.CloseIdleConnections()
	body, err := t.post(ctx, c, i)
	if err != nil {
		return nil, err
	}
	review := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("cannot read an answer: %w", err)
	}
	return review.Response, nil
}

// cpu that the target's process has used, in user and in kernel mode; the kernel counts in 10 ms.
func (t *target) cpu() (time.Duration, error) {
	proc, err := procfs.NewProc(t.pid)
	if err != nil {
		return 0, fmt.Errorf("cannot measure CPU: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("cannot measure CPU: %w", err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// drive for so long, with one request in flight after the other (closed loop), or with so many each second, whatever becomes of those
// before, whose latency counts from when they are due (open loop).
func (t *target) drive(ctx context.Context, d time.Duration, perSecond int) (r round, err error) {
	inFlight, interval := t.inFlight, time.Duration(0)
	if perSecond > 0 {
		inFlight, interval = openInFlight, time.Second/time.Duration(perSecond)
	}
	c := t.connect(inFlight)
	defer c.CloseIdleConnections()
	// A request on each connection, so that all that comes once is behind them.
	err = load.InParallel(ctx, inFlight, inFlight, func(ctx context.Context, i int) error {
		_, err := t.post(ctx, c, i)
		return err
	})
	if err != nil {
		return r, err
	}
	before, err := t.cpu()
	if err != nil {
		return r, err
	}
	took := make([][]time.Duration, inFlight) // by worker
	var next atomic.Int64
	begin := time.Now()
	all, driving := errgroup.WithContext(ctx)
	for worker := range took {
		took[worker] = make([]time.Duration, 0, 1<<14)
		all.Go(func() error {
			for {
				n, due := next.Add(1)-1, time.Now()
				if interval > 0 {
					due = begin.Add(time.Duration(n) * interval)
				}
				if due.Sub(begin) >= d {
					return nil
				}
				if interval > 0 {
					sleep(driving, time.Until(due))
				}
				if _, err := t.post(driving, c, int(n)); err != nil {
					return err
				}
				took[worker] = append(took[worker], time.Since(due))
			}
		})
	}
	if err := all.Wait(); err != nil {
		return r, err
	}
	lasted := time.Since(begin)
	after, err := t.cpu()
	sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
	requests := float64(len(sorted))
	return round{
		perSecond: requests / lasted.Seconds(), cpuMicros: float64((after - before).Microseconds()) / requests,
		p50Millis: load.Milliseconds(load.Quantile(sorted, .5)), p99Millis: load.Milliseconds(load.Quantile(sorted, .99)),
	}, err
}

// sleep until the time has passed or the context ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
