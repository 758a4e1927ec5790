package webhook

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/selector"
)

// outcome of a claim's review.
type outcome int

const (
	bound outcome = iota
	unmatchedAdmitted
	unmatchedWaiting
	unmatchedDenied
	leftAlone
	malformedClaim
	unavailableForClaim
	outcomes
)

var outcomeNames = [outcomes]string{"bound", "unmatched_admitted", "unmatched_waiting", "unmatched_denied", "untouched", "malformed", "unavailable"}

// readOutcome of a live read.
type readOutcome int

const (
	readFound readOutcome = iota
	readNone
	readFailed
	readOutcomes
)

var readOutcomeNames = [readOutcomes]string{"found", "none", "failed"}

// guardOutcomes by the reason in the audit annotation; every other reason is
// one for which the class is left alone.
var guardOutcomes = map[string]string{
	"OneDefault": "admitted", "SecondDefault": "second_default", "DefaultInFlight": "in_flight",
	"AlreadyExists": "already_exists", "Conflict": "conflict", "NoNamespace": "no_namespace", "MalformedWeight": "malformed_weight",
}

const (
	guardUntouched   = "untouched"
	guardUnavailable = "unavailable"
)

// Metrics of what the two webhooks answer. A dry run is not counted, nor is a
// request that no API server sends. No value of a label is one that the author
// of a claim can make up: kinds that nobody registered are all the kind "".
//
// A nil *Metrics counts nothing.
type Metrics struct {
	snapshot func() selector.Snapshot

	decisions *prometheus.CounterVec
	choosing  *prometheus.HistogramVec
	reads     *prometheus.CounterVec
	reading   prometheus.Histogram
	guarded   *prometheus.CounterVec

	// kinds have their counters at hand, because finding one by its labels takes a
	// lock. The map is copied for each change, of which there is one for each
	// registration.
	kinds atomic.Pointer[map[string]*kindMetrics]
	mu    sync.Mutex // of those who change it
}

// kindMetrics are the counters of one claim kind.
type kindMetrics struct {
	strategy  string
	decisions [outcomes]prometheus.Counter
	choosing  prometheus.Observer
	reads     [readOutcomes]prometheus.Counter
}

// NewMetrics of the kinds in a snapshot, which is taken again and again.
func NewMetrics(snapshot func() selector.Snapshot) *Metrics {
	m := &Metrics{
		snapshot: snapshot,
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_decisions_total",
			Help: "Claims that were decided on, by claim kind, strategy and outcome: bound, unmatched_admitted, unmatched_waiting (to be bound later), unmatched_denied, untouched, malformed or unavailable.",
		}, []string{"claim_kind", "strategy", "outcome"}),
		choosing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "classbind_choosing_duration_seconds",
			Help:    "Time to choose a class for a claim among those that are known, without any read from the API server.",
			Buckets: []float64{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1},
		}, []string{"claim_kind"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_live_reads_total",
			Help: "Reads of classes from the API server for a claim that no known class matched, by claim kind and outcome: found, none or failed.",
		}, []string{"claim_kind", "outcome"}),
		// By no kind: how long it takes is the API server's doing.
		reading: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "classbind_live_read_duration_seconds",
			Help:    "Time to read classes from the API server for a claim that no known class matched.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2},
		}),
		guarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_guard_decisions_total",
			Help: "Classes that were judged before they were stored, by class kind and outcome: admitted, second_default, in_flight, already_exists, conflict, no_namespace, malformed_weight, untouched or unavailable.",
		}, []string{"class_kind", "outcome"}),
	}
	m.kinds.Store(&map[string]*kindMetrics{"": m.resolve("", "")})
	return m
}

// Register with what controller-runtime serves.
func (m *Metrics) Register() error { return metrics.Registry.Register(m) }

// Describe is called by the registry, as is Collect.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
}

// Collect has every counter of every kind that is registered: the increase from
// one that is not there to one is none.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, view := range m.snapshot() {
		m.of(view.Kind)
		for _, x := range view.Classes {
			for _, outcome := range guardOutcomes {
				m.guarded.WithLabelValues(x.Kind.Name, outcome)
			}
			m.guarded.WithLabelValues(x.Kind.Name, guardUntouched)
			m.guarded.WithLabelValues(x.Kind.Name, guardUnavailable)
		}
	}
	for _, c := range m.collectors() {
		c.Collect(to)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.decisions, m.choosing, m.reads, m.reading, m.guarded}
}

// of a claim kind; nil is one that nobody registered.
func (m *Metrics) of(kind *selector.ClaimKind) *kindMetrics {
	name, strategy := "", ""
	if kind != nil {
		name, strategy = kind.Name, string(kind.Strategy.Name)
	}
	if k := (*m.kinds.Load())[name]; k != nil && k.strategy == strategy {
		return k
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	kinds := maps.Clone(*m.kinds.Load())
	kinds[name] = m.resolve(name, strategy)
	m.kinds.Store(&kinds)
	return kinds[name]
}

func (m *Metrics) resolve(name, strategy string) *kindMetrics {
	k := &kindMetrics{strategy: strategy}
	for i, outcome := range outcomeNames {
		if name != "" || outcome == outcomeNames[leftAlone] || outcome == outcomeNames[unavailableForClaim] {
			k.decisions[i] = m.decisions.WithLabelValues(name, strategy, outcome)
		}
	}
	if name == "" {
		return k // Nothing is chosen.
	}
	for i, outcome := range readOutcomeNames {
		k.reads[i] = m.reads.WithLabelValues(name, outcome)
	}
	k.choosing = m.choosing.WithLabelValues(name)
	return k
}

// reviewed counts the answer to a claim: of which view, nil for a kind that is
// not known, and with which decision, of no view where there was none to make.
func (m *Metrics) reviewed(view *selector.View, d selector.Decision, response *admissionv1.AdmissionResponse, err error) {
	if m == nil || isBadRequest(err) || response == nil && err == nil { // The last is a panic on its way.
		return
	}
	kind := (*selector.ClaimKind)(nil)
	if view != nil {
		kind = view.Kind
	}
	m.of(kind).decisions[outcomeOf(d, response, err)].Inc()
}

func outcomeOf(d selector.Decision, response *admissionv1.AdmissionResponse, err error) outcome {
	switch {
	case err != nil:
		return unavailableForClaim
	case d.View == nil && response.Allowed:
		return leftAlone
	case d.View == nil:
		return malformedClaim
	case d.Class != nil:
		return bound
	case response.Allowed && d.View.Kind.BindLater:
		return unmatchedWaiting
	case response.Allowed:
		return unmatchedAdmitted
	}
	return unmatchedDenied
}

func isBadRequest(err error) bool {
	if err == nil { // Or every claim would have to allocate what follows.
		return false
	}
	bad := (*badRequest)(nil)
	return errors.As(err, &bad)
}

// chose observes how long a choice among the known classes took.
func (m *Metrics) chose(kind *selector.ClaimKind, took time.Duration) {
	if m != nil {
		m.of(kind).choosing.Observe(took.Seconds())
	}
}

// read observes how long a live read took, and counts what came of it.
func (m *Metrics) read(kind *selector.ClaimKind, took time.Duration, o readOutcome) {
	if m != nil {
		m.reading.Observe(took.Seconds())
		m.of(kind).reads[o].Inc()
	}
}

// judged counts the answer to a class, of a kind that is nil where it is not registered.
func (m *Metrics) judged(kind *selector.ClassKind, response *admissionv1.AdmissionResponse, err error) {
	if m == nil || isBadRequest(err) || response == nil && err == nil { // The last is a panic on its way.
		return
	}
	name, outcome := "", guardUnavailable
	if kind != nil {
		name = kind.Name
	}
	if err == nil {
		outcome = guardUntouched
		if o, ok := guardOutcomes[response.AuditAnnotations["reason"]]; ok {
			outcome = o
		}
	}
	m.guarded.WithLabelValues(name, outcome).Inc() // Few classes are marked or weighed, and these wait for Leases.
}
