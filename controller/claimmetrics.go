package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var countedClaims = prometheus.NewDesc("classbind_claims",
	"Claims of a kind that this replica watches, by state: bound to a class, or waiting for one. The leader watches those that are bound later, and every replica those that are counted.",
	[]string{"claim_kind", "state"}, nil)

// The outcomes of a late binding.
const (
	// lateBound claims got their class.
	lateBound = "bound"
	// lateChanged claims were, it seems, changed or deleted meanwhile, and are looked at anew.
	lateChanged = "changed"
	// lateFailed claims could not be written, and are tried again.
	lateFailed = "failed"
	// latePanicked claims made us fail: that is a mistake of ours, and in the log.
	latePanicked = "panicked"
)

// ClaimMetrics are of claims that are watched: how many there are, and what came
// of binding those that waited.
type ClaimMetrics struct {
	counts func() map[string]ClaimCounts
	late   *prometheus.CounterVec
}

// NewClaimMetrics asks for the counts, by claim kind, whenever it is asked.
func NewClaimMetrics(counts func() map[string]ClaimCounts) *ClaimMetrics {
	return &ClaimMetrics{counts: counts, late: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "classbind_late_bindings_total",
		Help: "Claims that waited and were to be bound, by claim kind and outcome: bound, changed, failed or panicked.",
	}, []string{"claim_kind", "outcome"})}
}

// tried counts a claim that waited, with one of the outcomes.
func (m *ClaimMetrics) tried(claimKind, outcome string) {
	m.late.WithLabelValues(claimKind, outcome).Inc()
}

// Register with what controller-runtime serves.
func (m *ClaimMetrics) Register() error { return metrics.Registry.Register(m) }

// Describe is called by the registry, as is Collect.
func (m *ClaimMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- countedClaims
	m.late.Describe(to)
}

// Collect has every outcome for every kind: the increase from a counter that is
// not there to one is none.
func (m *ClaimMetrics) Collect(to chan<- prometheus.Metric) {
	for name, count := range m.counts() {
		to <- prometheus.MustNewConstMetric(countedClaims, prometheus.GaugeValue, float64(count.Bound), name, "bound")
		to <- prometheus.MustNewConstMetric(countedClaims, prometheus.GaugeValue, float64(count.Waiting), name, "waiting")
		for _, outcome := range []string{lateBound, lateChanged, lateFailed, latePanicked} {
			m.late.WithLabelValues(name, outcome)
		}
	}
	m.late.Collect(to)
}
