package controller

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/selector"
)

// defaults of each claim kind, as they are scraped.
func defaults(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "classbind_default_classes" {
			continue
		}
		for _, m := range family.GetMetric() {
			require.Len(t, m.GetLabel(), 1, "We should tell claim kinds apart, and nothing else.")
			require.Equal(t, "claim_kind", m.GetLabel()[0].GetName())
			counts[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return counts
}

func TestMetrics(t *testing.T) {
	i := selector.NewInventory()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(inventoryMetrics{i}))
	i.SetClaimKind(selector.NewClaimKind(newClaimKind("claims.example.org")))
	i.SetClaimKind(selector.NewClaimKind(newClaimKind("others.example.org")))
	assert.Empty(t, defaults(t, registry), "We should not count before all is known.")

	i.Open()
	assert.Equal(t, map[string]float64{"claims.example.org": 0, "others.example.org": 0}, defaults(t, registry), "We should say that there is none.")

	isDefault := []string{"default", "true"}
	i.SetClasses(newIndex(newClassKind("golds.example.org", "Gold"), map[string][]string{"a": isDefault, "b": nil}))
	i.SetClasses(newIndex(newClassKind("silvers.example.org", "Silver"), map[string][]string{"a": isDefault}))
	assert.Equal(t, map[string]float64{"claims.example.org": 2, "others.example.org": 0}, defaults(t, registry), "We should count the defaults of all class kinds that serve the claim kind.")

	i.DeleteClaimKind("others.example.org")
	assert.Equal(t, map[string]float64{"claims.example.org": 2}, defaults(t, registry), "We should not count for a claim kind that is registered no more.")
}

func TestRegisterMetrics(t *testing.T) {
	r := &Registration{Inventory: selector.NewInventory()}
	r.Inventory.SetClaimKind(selector.NewClaimKind(newClaimKind("claims.example.org")))
	r.Inventory.Open()
	require.NoError(t, r.RegisterMetrics())
	t.Cleanup(func() { metrics.Registry.Unregister(inventoryMetrics{r.Inventory}) })
	assert.Equal(t, map[string]float64{"claims.example.org": 0}, defaults(t, metrics.Registry), "We should be in what controller-runtime serves.")
	assert.Error(t, r.RegisterMetrics(), "We should not count twice.")
}
