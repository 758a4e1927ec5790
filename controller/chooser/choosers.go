// Package chooser asks choosers: programs that rank the classes which claims may get. api/chooser/v1 has the protocol.
//
// A claim never waits for a connection, nor for another claim, and its question is never repeated. So whatever a chooser
// does, a claim waits for its timeout at most, and other namespaces and other kinds wait for nothing.
package chooser

import (
	"context"
	"crypto/tls"
	"errors"
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
	// syncInterval is how soon a registration has a connection.
	syncInterval = 500 * time.Millisecond
	// pollInterval is how often each replica asks for the status of a chooser: a new epoch, and the end of an outage, are noticed that
	// late. One replica waits for longer than another, by the jitter at most.
	pollInterval = 2 * time.Second
	pollJitter   = 0.2
	// secretInterval is how often it reads a Secret with a client certificate.
	secretInterval = time.Minute
)

// cached is the outcome of an answer from the cache, in a metric.
const cached = "Cached"

// Choosers are those of all claim kinds. They run on every replica.
type Choosers struct {
	// Snapshot is what is registered; nil means nothing yet.
	Snapshot func() selector.Snapshot
	// Certificate is that of the webhook server.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Secrets are read in Namespace, that of classbind.
	Secrets   client.Reader
	Namespace string

	states      loop.Listeners[string]
	connections atomic.Pointer[map[string]*connection] // by ClaimKind
	answers     *prometheus.CounterVec
	unknown     *prometheus.CounterVec
	ready       *prometheus.GaugeVec
	seconds     *prometheus.HistogramVec
}

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
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "classbind_chooser_ready",
			Help: "Whether the chooser of a claim kind answers this replica: 1 if the last answer to Status was good.",
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
	return errors.Join(metrics.Registry.Register(c.answers), metrics.Registry.Register(c.unknown), metrics.Registry.Register(c.ready),
		metrics.Registry.Register(c.seconds))
}

// NeedLeaderElection is false: every replica asks.
func (c *Choosers) NeedLeaderElection() bool { return false }

// Start has a connection to the chooser of each registered claim kind, until the context ends.
func (c *Choosers) Start(ctx context.Context) error {
	var running sync.WaitGroup
	recovered.Rounds(ctx, func(ctx context.Context) { c.sync(ctx, &running) }, syncInterval)
	for _, l := range *c.connections.Swap(&map[string]*connection{}) {
		l.stop()
	}
	running.Wait()
	return nil
}

// sync starts connections for new registrations, and stops those of others.
func (c *Choosers) sync(ctx context.Context, running *sync.WaitGroup) {
	before := *c.connections.Load()
	next := map[string]*connection{}
	for name, view := range c.Snapshot() {
		e := view.Kind.External
		if e == nil {
			continue
		}
		known := before[name]
		if known == nil || known.address != e.Address() {
			known = c.newConnection(name, e)
			running.Go(func() { defer recovered.Here(); known.run(ctx) })
		}
		known.external.Store(e) // A new CA or timeout needs no other connection.
		next[name] = known
	}
	if maps.Equal(before, next) {
		return
	}
	c.connections.Store(&next)
	for name, l := range before {
		if next[name] != l {
			l.stop()
		}
		if next[name] == nil {
			for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{c.answers, c.unknown, c.ready, c.seconds} {
				vec.DeletePartialMatch(prometheus.Labels{"claim_kind": name})
			}
		}
	}
}

// Choose asks the chooser of a claim's kind, and counts the answer.
func (c *Choosers) Choose(ctx context.Context, q *selector.Question) selector.Answer {
	answer := unavailable(v1beta1.ReasonConnection)
	outcome := ""
	if l := (*c.connections.Load())[q.Kind.Name]; l != nil {
		answer, outcome = l.choose(ctx, q)
	}
	if outcome == "" {
		outcome = answer.Unavailable
	}
	if !q.DryRun {
		c.answers.WithLabelValues(q.Kind.Name, outcome).Inc()
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
