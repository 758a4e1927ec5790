package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var countedClaims = prometheus.NewDesc("classbind_claims",
	"Claims of a kind, by state: bound to a class, or waiting for one. Only the leader knows, and only of kinds whose claims are watched.",
	[]string{"claim_kind", "state"}, nil)

// ClaimCount is of the claims of one kind.
type ClaimCount struct {
	// Bound have a class, and Waiting are to get one.
	Bound, Waiting int
}

// The outcomes of a late binding.
const (
	// LateBound claims got their class.
	LateBound = "bound"
	// LateChanged claims were changed or deleted meanwhile, and are looked at anew.
	LateChanged = "changed"
	// LateFailed claims could not be written, and are tried again.
	LateFailed = "failed"
)

// ClaimMetrics are of claims that are watched: how many there are, and what came
// of binding those that waited.
type ClaimMetrics struct {
	counts func() map[string]ClaimCount
	late   *prometheus.CounterVec
}

// NewClaimMetrics asks for the counts, by claim kind, whenever it is asked. It is
// a replica's, for all of its terms as leader: between them there are none.
func NewClaimMetrics(counts func() map[string]ClaimCount) *ClaimMetrics {
	return &ClaimMetrics{counts: counts, late: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "classbind_late_bindings_total",
		Help: "Claims that waited and were to be bound, by claim kind and outcome: bound, changed or failed.",
	}, []string{"claim_kind", "outcome"})}
}

// Late counts a claim that waited, with one of the outcomes.
func (m *ClaimMetrics) Late(claimKind, outcome string) {
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
		for _, outcome := range []string{LateBound, LateChanged, LateFailed} {
			m.late.WithLabelValues(name, outcome)
		}
	}
	m.late.Collect(to)
}
