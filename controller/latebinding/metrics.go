package latebinding

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var countedClaims = prometheus.NewDesc("classbind_claims",
	"Claims of a kind that this replica watches, by state: bound to a class, or waiting for one. "+
		"The leader watches those that are bound later, and every replica those that are counted.",
	[]string{"claim_kind", "state"}, nil)

// The outcomes of a late binding.
const (
	// lateBound claims got their class.
	lateBound = "bound"
	// lateChanged claims have probably been changed or deleted, and are looked at again.
	lateChanged = "changed"
	// lateFailed claims could not be written, and are tried again.
	lateFailed = "failed"
	// latePanicked claims caused a panic: a bug in classbind, and in its log.
	latePanicked = "panicked"
)

// Metrics count the watched claims, and the outcomes of late bindings.
type Metrics struct {
	counts func() map[string]ClaimCounts
	late   *prometheus.CounterVec
}

// NewMetrics returns metrics that read the counts, by claim kind, at each scrape.
func NewMetrics(counts func() map[string]ClaimCounts) *Metrics {
	return &Metrics{counts: counts, late: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "classbind_late_bindings_total",
		Help: "Claims that waited and were to be bound, by claim kind and outcome: bound, changed, failed or panicked.",
	}, []string{"claim_kind", "outcome"})}
}

// tried counts one late binding, by its outcome.
func (m *Metrics) tried(claimKind, outcome string) {
	m.late.WithLabelValues(claimKind, outcome).Inc()
}

// Register adds the metrics to those that controller-runtime serves.
func (m *Metrics) Register() error { return metrics.Registry.Register(m) }

// Describe is called by the registry, as is Collect.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	to <- countedClaims
	m.late.Describe(to)
}

// Collect exports every outcome for every kind, zeros included: Prometheus sees no
// increase in a counter that appears with the value one.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for name, count := range m.counts() {
		to <- prometheus.MustNewConstMetric(countedClaims, prometheus.GaugeValue, float64(count.Bound), name, "bound")
		to <- prometheus.MustNewConstMetric(countedClaims, prometheus.GaugeValue, float64(count.Waiting), name, "waiting")
		for _, outcome := range []string{lateBound, lateChanged, lateFailed, latePanicked} {
			m.late.WithLabelValues(name, outcome)
		}
	}
	m.late.Collect(to)
}
