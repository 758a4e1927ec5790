package latebinding

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

var (
	countedClaims = prometheus.NewDesc("classbind_claims",
		"Claims of a kind that this replica watches, by state: bound to a class, or, on the leader, waiting for one.",
		[]string{"claim_kind", "state"}, nil)
	classClaims = prometheus.NewDesc("classbind_class_claims",
		fmt.Sprintf("Claims that have a class, of the kinds that this replica watches. Of each class kind there are "+
			"the %d classes with the most claims; those of all others have the class \"\".", v1beta1.MaxClassSeries),
		[]string{"class_kind", "class_namespace", "class"}, nil)
	classCapacity = prometheus.NewDesc("classbind_class_capacity",
		fmt.Sprintf("How much the claims of a class may use together, where it has a limit. Of each class kind there are "+
			"the %d classes of which the greatest share is used.", v1beta1.MaxClassSeries),
		[]string{"class_kind", "class_namespace", "class"}, nil)
	classCapacityUsed = prometheus.NewDesc("classbind_class_capacity_used",
		"How much of the capacity of a class is used, with what is reserved for claims that are not seen stored yet. "+
			"There is none while claims have yet to be counted.",
		[]string{"class_kind", "class_namespace", "class"}, nil)
)

// The outcomes of a late binding.
const (
	lateBound    = "bound"    // Claims got their class.
	lateChanged  = "changed"  // Claims have probably been changed or deleted, and are looked at again.
	lateFailed   = "failed"   // Claims could not be written, and are tried again.
	latePanicked = "panicked" // Claims caused a panic: a bug in classbind, and in its log.
)

// Metrics count the watched claims, and the outcomes of late bindings.
type Metrics struct {
	claims *Claims
	late   *prometheus.CounterVec
}

// NewMetrics returns metrics that read the claims at each scrape.
func NewMetrics(c *Claims) *Metrics {
	return &Metrics{c, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "classbind_late_bindings_total",
		Help: "Claims that waited and were to be bound, by claim kind and outcome: bound, changed, failed or panicked.",
	}, []string{"claim_kind", "outcome"})}
}

func (m *Metrics) tried(claimKind, outcome string) { m.late.WithLabelValues(claimKind, outcome).Inc() }

// Register adds the metrics to those that controller-runtime serves.
func (m *Metrics) Register() error { return metrics.Registry.Register(m) }

// Describe is called by the registry, as is Collect.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	to <- countedClaims
	to <- classClaims
	to <- classCapacity
	to <- classCapacityUsed
	m.late.Describe(to)
}

// Collect exports every outcome for every kind, zeros included: Prometheus sees no increase in a counter that appears with the value one.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	for name, w := range m.claims.watches() {
		s := w.published.Load()
		if !s.synced {
			continue
		}
		gauge(countedClaims, int64(s.counts.Bound), name, "bound")
		if s.binds { // Other replicas do not know which namespaces are selected.
			gauge(countedClaims, int64(s.counts.Waiting), name, "waiting")
		}
		for _, outcome := range []string{lateBound, lateChanged, lateFailed, latePanicked} {
			m.late.WithLabelValues(name, outcome)
		}
	}
	m.late.Collect(to)
	m.claims.eachClassKind(func(_ *selector.View, classes *inventory.Classes) bool {
		counts := m.claims.countsFor(classes.Kind)
		if !counts.known() {
			return true
		}
		top, others := counts.top(classes, v1beta1.MaxClassSeries)
		for _, c := range top {
			gauge(classClaims, c.claims, c.Kind.Name, c.Namespace, c.Name)
		}
		if classes.Len() > len(top) {
			gauge(classClaims, others, classes.Kind.Name, "", "")
		}
		return true
	})
	m.claims.limitedClasses(v1beta1.MaxClassSeries, func(top []limitedClass) {
		for _, c := range top {
			gauge(classCapacity, c.Capacity.Total, c.Kind.Name, c.Namespace, c.Name)
			if c.known {
				gauge(classCapacityUsed, c.taken, c.Kind.Name, c.Namespace, c.Name)
			}
		}
	})
}
