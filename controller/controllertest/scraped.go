package controllertest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// Scraped is all our metrics. A key is the name without classbind_, and the values of the labels. A histogram is the number of its
// observations.
func Scraped(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), "classbind_")
		if !ours {
			continue
		}
		for _, m := range family.GetMetric() {
			key := []string{name}
			for _, l := range m.GetLabel() {
				key = append(key, l.GetName()+"="+l.GetValue())
			}
			observed := float64(m.GetHistogram().GetSampleCount())
			values[strings.Join(key, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + observed
		}
	}
	return values
}
