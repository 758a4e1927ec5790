package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/selector"
)

var defaultClasses = prometheus.NewDesc("classbind_default_classes",
	"Classes marked default for a claim kind that are not being deleted. More than one is for admins to mend.",
	[]string{"claim_kind"}, nil)

// inventoryMetrics counts when it is asked, so that nothing is counted while claims are bound.
type inventoryMetrics struct{ inventory *selector.Inventory }

// RegisterMetrics of what is registered and known, on every replica.
func (r *Registration) RegisterMetrics() error {
	return metrics.Registry.Register(inventoryMetrics{r.Inventory})
}

// Describe is called by the registry, as is Collect.
func (m inventoryMetrics) Describe(to chan<- *prometheus.Desc) { to <- defaultClasses }

// Collect counts.
func (m inventoryMetrics) Collect(to chan<- prometheus.Metric) {
	for name, view := range m.inventory.Snapshot() {
		to <- prometheus.MustNewConstMetric(defaultClasses, prometheus.GaugeValue, float64(len(view.Defaults())), name)
	}
}
