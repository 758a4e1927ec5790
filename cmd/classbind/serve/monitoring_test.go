package serve

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/certs"
	"github.com/classbind/classbind/controller/access"
	"github.com/classbind/classbind/controller/chooser"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/webhook"
)

const monitoring = "../../../deploy/components/monitoring/"

// query is the expression of an alert or of a panel, with the text beside it, which may use labels.
type query struct{ of, expr, text string }

// TestMonitoring proves that the alerts and the dashboard use the names and labels of our metrics, and leave none out. make promql proves
// that Prometheus can parse them, and e2e that an API server counts what they ask it for.
func TestMonitoring(t *testing.T) {
	described := ourMetrics(t)
	used := map[string]bool{}
	queries := slices.Concat(alerts(t), panels(t))
	for _, q := range queries {
		var labels []string
		for _, asked := range vectorSelector.FindAllStringSubmatch(q.expr, -1) {
			name, matchers := asked[1], asked[2]
			if !strings.HasPrefix(name, "classbind_") {
				continue
			}
			base := strings.TrimSuffix(name, "_bucket")
			require.Contains(t, described, base, "We should have what %s asks for.", q.of)
			assert.Contains(t, matchers, `namespace="classbind-system", job="classbind"`, "The query of %s should select only our metrics.", q.of)
			used[base] = true
			labels = append(labels, described[base]...)
			for _, m := range labelMatcher.FindAllStringSubmatch(matchers, -1) {
				assert.Contains(t, append(described[base], "namespace", "job"), m[1], "The query of %s should use existing labels.", q.of)
			}
		}
		if labels == nil {
			continue
		}
		for _, m := range usedLabel.FindAllStringSubmatch(q.expr+q.text, -1) {
			for label := range strings.SplitSeq(m[1]+m[2]+m[3], ",") {
				assert.Contains(t, append(labels, "le", "pod"), strings.TrimSpace(label), "The text of %s should use existing labels.", q.of)
			}
		}
	}
	for name := range described {
		assert.True(t, used[name], "We should show %s.", name)
	}
}

var (
	vectorSelector = regexp.MustCompile(`([a-z_]+)\{([^}]*)\}`)
	labelMatcher   = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
	usedLabel      = regexp.MustCompile(`\bby \(([^)]+)\) \(|\$labels\.(\w+)|\{\{(\w+)\}\}`)
	description    = regexp.MustCompile(`^Desc\{fqName: "(\w+)", .*variableLabels: \{([^}]*)\}\}$`)
)

// ourMetrics returns the labels of our metrics by name.
func ourMetrics(t *testing.T) map[string][]string {
	t.Helper()
	// The recorder sees everything that registers itself.
	before := metrics.Registry
	recorded := &recorder{RegistererGatherer: before}
	metrics.Registry = recorded
	t.Cleanup(func() { metrics.Registry = before })
	inventory := selector.NewInventory()
	require.NoError(t, (&registry.Registration{Inventory: inventory}).RegisterMetrics())
	require.NoError(t, (&certs.Gate{}).RegisterMetrics())
	require.NoError(t, webhook.NewMetrics(inventory.Snapshot).Register())
	require.NoError(t, access.NewReviews(nil).RegisterMetrics())
	require.NoError(t, chooser.New().RegisterMetrics())
	require.NoError(t, latebinding.NewMetrics(nil).Register())
	require.NoError(t, Build{}.RegisterMetrics())
	require.NoError(t, loop.RegisterMetrics())

	all := map[string][]string{}
	for _, c := range recorded.collectors {
		descriptions := make(chan *prometheus.Desc, 100)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := description.FindStringSubmatch(d.String())
			require.NotNil(t, m, d.String())
			all[m[1]] = strings.Split(m[2], ",")
		}
	}
	return all
}

type recorder struct {
	metrics.RegistererGatherer
	collectors []prometheus.Collector
}

func (r *recorder) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return nil
}

func alerts(t *testing.T) (all []query) {
	t.Helper()
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr         string
					Labels, Annotations map[string]string
				}
			}
		}
	}
	text, err := os.ReadFile(monitoring + "prometheusrule.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &rules))
	for _, g := range rules.Spec.Groups {
		for _, r := range g.Rules {
			all = append(all, query{r.Alert, r.Expr, r.Annotations["summary"] + r.Annotations["description"]})
		}
	}
	require.NotEmpty(t, all)
	return all
}

func panels(t *testing.T) (all []query) {
	t.Helper()
	var dashboard struct {
		UID    string
		Panels []struct {
			ID                 int
			Title, Description string
			Targets            []struct{ Expr, LegendFormat string }
		}
	}
	text, err := os.ReadFile(monitoring + "dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	assert.NotEmpty(t, dashboard.UID, "We should keep links to the dashboard when it changes.")
	for i, p := range dashboard.Panels {
		assert.Equal(t, i+1, p.ID)
		assert.NotEmpty(t, p.Description, "We should say what %q shows.", p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$namespace", "classbind-system")
			all = append(all, query{"the panel " + p.Title, expr, target.LegendFormat})
		}
	}
	require.NotEmpty(t, all)
	return all
}
