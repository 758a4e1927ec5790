// Package monitoring has Prometheus' own parser and engine read the alerts and the dashboard in deploy/. It is a module of its own because
// Prometheus' dependencies would move those of the Kubernetes that e2e builds.
package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const component = "../../deploy/components/monitoring"

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(component, "dashboard.json"))
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	// Grafana's variables: the namespace, every claim kind, and the range that it takes for one scrape every so often.
	variables := strings.NewReplacer("$namespace", "classbind-system", "$claim_kind", ".*", "$__rate_interval", "1m")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expr := variables.Replace(target.Expr)
			_, err := parser.ParseExpr(expr)
			require.NoError(t, err, "%s: %s", p.Title, expr)
			assert.NotContains(t, expr, "$", "We should know every variable.")
		}
	}
}

// rules are the alerts, as Prometheus loads them, templates included.
func rules(t *testing.T) []rulefmt.RuleGroup {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(component, "prometheusrule.yaml"))
	require.NoError(t, err)
	var object struct{ Spec json.RawMessage }
	require.NoError(t, yaml.Unmarshal(text, &object))
	text, err = yaml.JSONToYAML(object.Spec)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	require.Empty(t, errs)
	return groups.Groups
}
