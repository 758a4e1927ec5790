// Package chooser asks choosers: programs that rank the classes which claims may get. api/chooser/v1 has the protocol.
//
// A claim never waits for a connection, nor for another claim, and its question is never repeated. So whatever a chooser
// does, a claim waits for its timeout at most, and other namespaces and other kinds wait for nothing.
package chooser

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/recovered"
)

const (
	// syncInterval is how soon a registration that is gone has no connection. A new one has one at once.
	syncInterval = 500 * time.Millisecond
	// pollInterval is how often each replica asks for the status of a chooser: a new epoch, and the end of an outage, are noticed that
	// late. One replica waits for longer than another, by the jitter at most.
	pollInterval = 2 * time.Second
	pollJitter   = 0.2
	// secretInterval is how often it reads a Secret with a client certificate, within secretTimeout.
	secretInterval = time.Minute
	secretTimeout  = 10 * time.Second
)

// cached is the outcome of an answer from the cache, in a metric.
const cached = "Cached"

// Choosers are those of all claim kinds. They run on every replica.
type Choosers struct {
	// Snapshot is what is registered; nil means nothing yet.
	Snapshot func() selector.Snapshot
	// OnRegistered calls a function for each registration that is new or has changed, until the context ends.
	OnRegistered func(ctx context.Context, call func(claimKind string))
	// Certificate is that of the webhook server.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Secrets are read in Namespace, that of classbind.
	Secrets   client.Reader
	Namespace string

	states      loop.Listeners[string]
	mu          sync.Mutex                             // is held by what changes the connections
	connections atomic.Pointer[map[string]*connection] // by ClaimKind
	renewals    map[string]*connection                 // with another CA or Secret, which take over once they were asked. Guarded by mu
	isReady     atomic.Bool
	answers     *prometheus.CounterVec
	unknown     *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
}

var readyMetric = prometheus.NewDesc("classbind_chooser_ready",
	"Whether the chooser of a claim kind answers this replica: 1 if the last answer to Status was good.", []string{"claim_kind"}, nil)

// New returns choosers that know no ClaimKind yet.
func New() *Choosers {
	c := &Choosers{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_chooser_answers_total",
			Help: "Questions to the chooser of a claim kind, by outcome: Order, NoClass, NoOpinion, Cached, or why the chooser was " +
				"unavailable, such as Timeout.",
		}, []string{"claim_kind", "outcome"}),
		unknown: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_chooser_unknown_ids_total",
			Help: "Identifiers in answers of the chooser of a claim kind that its question did not have, and that were ignored.",
		}, []string{"claim_kind"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "classbind_chooser_duration_seconds", Help: "Time that claims waited for the chooser of a claim kind.",
			Buckets: []float64{1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1},
		}, []string{"claim_kind"}),
	}
	c.connections.Store(&map[string]*connection{})
	return c
}

// RegisterMetrics with those that controller-runtime serves.
func (c *Choosers) RegisterMetrics() error {
	return errors.Join(metrics.Registry.Register(c.answers), metrics.Registry.Register(c.unknown), metrics.Registry.Register(c.seconds),
		metrics.Registry.Register(c))
}

// Describe implements prometheus.Collector, for what is read from the connections: one that has ended leaves nothing.
func (c *Choosers) Describe(to chan<- *prometheus.Desc) { to <- readyMetric }

// Collect implements prometheus.Collector.
func (c *Choosers) Collect(to chan<- prometheus.Metric) {
	for name, l := range *c.connections.Load() {
		if state, known := l.circuit.lastStatus(); known {
			to <- prometheus.MustNewConstMetric(readyMetric, prometheus.GaugeValue, map[bool]float64{true: 1}[state.Reason == ""], name)
		}
	}
}

// NeedLeaderElection is false: every replica asks.
func (c *Choosers) NeedLeaderElection() bool { return false }

// Start has a connection to the chooser of each registered claim kind, until the context ends.
func (c *Choosers) Start(ctx context.Context) error {
	var running sync.WaitGroup
	c.OnRegistered(ctx, func(string) { c.sync(ctx, &running) })
	recovered.Rounds(ctx, func(ctx context.Context) { c.sync(ctx, &running) }, syncInterval)
	c.mu.Lock() // The last call of sync is over.
	defer c.mu.Unlock()
	for _, l := range *c.connections.Swap(&map[string]*connection{}) {
		l.stop()
	}
	running.Wait()
	return nil
}

// Ready reports, until it was ready once, whether the chooser of each registered claim kind was asked for its status, whatever it answered:
// a replica that has just started should not draw claims because it is not connected yet.
func (c *Choosers) Ready() error {
	snapshot := c.Snapshot()
	if snapshot == nil {
		return errors.New("no registration is known yet")
	}
	for name, view := range snapshot {
		if _, known := c.StateOf(name); view.Kind.External != nil && !known && !c.isReady.Load() {
			return fmt.Errorf("the chooser of claim kind %q has not been asked for its status yet", name)
		}
	}
	c.isReady.Store(true)
	return nil
}

// sync starts connections for new registrations, and for those with another CA or Secret, and stops those of others.
func (c *Choosers) sync(ctx context.Context, running *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	before, renewals := *c.connections.Load(), c.renewals
	next := map[string]*connection{}
	c.renewals = map[string]*connection{}
	start := func(name string, e *v1beta1.External) *connection {
		l := c.newConnection(name, e)
		running.Go(func() { defer recovered.Here(); l.run(ctx) })
		return l
	}
	for name, view := range c.Snapshot() {
		e := view.Kind.External
		if e == nil {
			continue
		}
		known, renewal := before[name], renewals[name]
		switch {
		case known == nil || known.address != e.Address():
			known = start(name, e)
		case known.isFor(e):
		case renewal == nil || !renewal.isFor(e):
			c.renewals[name] = start(name, e)
		default:
			if state, asked := renewal.circuit.lastStatus(); asked && (state.Reason != "" || renewal.isConnected()) {
				known = renewal
			} else {
				c.renewals[name] = renewal
			}
		}
		known.external.Store(e) // Another timeout needs no other connection.
		next[name] = known
	}
	for name, l := range renewals {
		if c.renewals[name] != l && next[name] != l {
			l.stop()
		}
	}
	if maps.Equal(before, next) {
		return
	}
	c.connections.Store(&next)
	for name, l := range before {
		if next[name] != l {
			l.stop()
			c.states.Notify(name)
		}
		c.forgetIfGone(name)
	}
}

// forgetIfGone deletes the counts of a claim kind without a connection. It is called after each change of the connections, and after each
// count: so none is left.
func (c *Choosers) forgetIfGone(name string) {
	if (*c.connections.Load())[name] != nil {
		return
	}
	for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{c.answers, c.unknown, c.seconds} {
		vec.DeletePartialMatch(prometheus.Labels{"claim_kind": name})
	}
}

// Choose asks the chooser of a claim's kind, and counts the answer. A connection to an address that the kind no longer has is not used.
func (c *Choosers) Choose(ctx context.Context, q *selector.Question) selector.Answer {
	answer, outcome := unavailable(v1beta1.ReasonConnection), ""
	e := q.Kind.External
	switch l := (*c.connections.Load())[q.Kind.Name]; {
	case e.Service != nil && string(e.Service.Namespace) == q.Namespace:
		answer = unavailable(v1beta1.ReasonOwnNamespace)
	case l != nil && l.address == e.Address():
		answer, outcome = l.choose(ctx, q)
	}
	if outcome == "" {
		outcome = answer.Unavailable
	}
	if !q.DryRun {
		c.answers.WithLabelValues(q.Kind.Name, outcome).Inc()
		c.forgetIfGone(q.Kind.Name)
	}
	return answer
}

func unavailable(reason string) selector.Answer {
	return selector.Answer{Outcome: selector.ChooserUnavailable, Unavailable: reason}
}

// State is what a replica knows of a chooser.
type State struct {
	// Reason why it is unavailable; empty, it is ready. Message says more.
	Reason, Message string
}

// StateOf the chooser of a claim kind; false while it is not known.
func (c *Choosers) StateOf(claimKind string) (s State, known bool) {
	l := (*c.connections.Load())[claimKind]
	if l == nil {
		return s, false
	}
	return l.circuit.lastStatus()
}

// OnChange calls a function with the name of a claim kind when the state of its chooser changes, until the context ends.
func (c *Choosers) OnChange(ctx context.Context, call func(claimKind string)) {
	c.states.Add(ctx, call)
}
