package main

import (
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const component = "../../deploy/components/monitoring"

func TestAlerts(t *testing.T) {
	text, err := rules(component)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	require.Empty(t, errs, "We should write what Prometheus loads, templates included.")
	require.NotEmpty(t, groups.Groups)
	for _, g := range groups.Groups {
		assert.NotEmpty(t, g.Rules)
	}
}

func TestDashboard(t *testing.T) {
	d, err := readDashboard(component)
	require.NoError(t, err)
	require.NotEmpty(t, d.Panels)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expr := target.promQL(15 * time.Second)
			_, err := parser.ParseExpr(expr)
			require.NoError(t, err, "%s: %s", p.Title, expr)
			assert.NotContains(t, expr, "$", "We should know every variable.")
		}
	}
}
