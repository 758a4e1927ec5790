package bench

import (
	"bytes"
	"context"
	"fmt"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// heap that is in use after a garbage collection, in bytes.
func (r *replica) heap(ctx context.Context) (int64, error) {
	if _, err := get(ctx, r.pprof+"/debug/pprof/heap?gc=1"); err != nil {
		return 0, fmt.Errorf("cannot collect garbage: %w", err)
	}
	bytes, err := r.gauge(ctx, "go_memstats_heap_alloc_bytes")
	return int64(bytes), err
}

// gauge of the replica's metrics, one without labels.
func (r *replica) gauge(ctx context.Context, name string) (float64, error) {
	text, err := r.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, fmt.Errorf("cannot read metrics: %w", err)
	}
	metrics := families[name].GetMetric()
	if len(metrics) != 1 {
		return 0, fmt.Errorf("there are %d metrics %s", len(metrics), name)
	}
	return metrics[0].GetGauge().GetValue(), nil
}
