package serve

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Build is what a binary knows of its origin.
type Build struct {
	Version string
	Commit  string // of git, or "" if nobody told
}

// RegisterMetrics adds a metric that is always 1, for its labels.
func (b Build) RegisterMetrics() error {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "classbind_build_info",
		Help: "Always 1. The labels are the version of this replica, its commit, and the version of Go that built it.",
	}, []string{"version", "revision", "goversion"})
	info.WithLabelValues(b.Version, b.Commit, runtime.Version()).Set(1)
	return metrics.Registry.Register(info)
}
