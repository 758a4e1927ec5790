// Package monitoring has Prometheus' own parser and engine read the alerts and the dashboard in deploy/. It is a module of its own because
// Prometheus' dependencies would move those of the Kubernetes that e2e builds.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
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

// dashboard is what is used here of Grafana's.
type dashboard struct {
	Panels []panel `json:"panels"`
}

type panel struct {
	Title   string   `json:"title"`
	Targets []target `json:"targets"`
}

type target struct {
	Expr string `json:"expr"`
}

func readDashboard(component string) (dashboard, error) {
	d := dashboard{}
	text, err := os.ReadFile(filepath.Join(component, "dashboard.json")) //nolint:gosec // It is one of our manifests.
	if err != nil {
		return d, fmt.Errorf("cannot read the dashboard: %w", err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("cannot read the dashboard: %w", err)
	}
	return d, nil
}

// promQL is the expression without Grafana's variables: for every claim kind, and
// with the range that Grafana takes for one scrape every so often.
func (t target) promQL(every time.Duration) string {
	return strings.NewReplacer("$claim_kind", ".*", "$__rate_interval", (4 * every).String()).Replace(t.Expr)
}

// rules are the alerts, in the form of Prometheus' own rule files.
func rules(component string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(component, "prometheusrule.yaml")) //nolint:gosec // It is one of our manifests.
	if err != nil {
		return nil, fmt.Errorf("cannot read the alerts: %w", err)
	}
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("cannot read the alerts: %w", err)
	}
	return yaml.JSONToYAML(object.Spec)
}
