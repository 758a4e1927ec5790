package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/controlplane"
)

// BenchmarkCreateClass has one client create classes, without and with a guard
// that reads and writes a Lease, while nobody competes. It compares medians
// within the run.
func BenchmarkCreateClass(b *testing.B) {
	w := newWorld(b, controlplane.Options{})
	w.serve(b)
	w.resources(b, "Claim claims.bench.test Namespaced", "Free frees.bench.test Cluster", "Guarded guardeds.bench.test Cluster")
	w.apply(b, vendor("bench.test")+claimKind("claims.bench.test", "{}")+classKind("guardeds.bench.test", "{claimKinds: [claims.bench.test]}"))
	w.awaitGuard(b, "bench.test", "Guarded", "guardeds.bench.test")
	for name, c := range map[string]struct{ kind, metadata string }{
		"Default/unguarded": {"Free", isDefault},
		"Default/guarded":   {"Guarded", isDefault},
		"Plain/unguarded":   {"Free", ""},
		"Plain/guarded":     {"Guarded", ""},
	} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for i := range b.N {
				name := fmt.Sprintf("%d-%d-%d", len(c.metadata), b.N, i)
				start := time.Now()
				object, _, err := w.create(b, class("bench.test", c.kind, name, c.metadata))
				took = append(took, time.Since(start))
				require.NoError(b, err)
				b.StopTimer()
				unmarked := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":null}}`))
				require.NoError(b, w.Patch(b.Context(), object, unmarked)) // So that the next may be default.
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-p50")
		})
	}
}
