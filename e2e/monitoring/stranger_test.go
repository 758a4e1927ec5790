package monitoring

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// samples of a series, by the number of the scrape.
type samples func(scrape int) float64

// healthy is a replica that answers, with a certificate for a week.
func healthy(now time.Time) map[string]samples {
	return map[string]samples{
		`up{namespace="classbind-system", job="classbind", pod="a"}`: func(int) float64 { return 1 },
		`classbind_certificate_expiry_timestamp_seconds{namespace="classbind-system", job="classbind", pod="a"}`: func(int) float64 {
			return float64(now.Add(7 * 24 * time.Hour).Unix())
		},
	}
}

// stranger adds what a pod can have classbind count, that asks it once a minute.
func stranger(series map[string]samples) {
	aMinute := func(scrape int) float64 { return float64(scrape / 2) }
	const ours = `namespace="classbind-system", job="classbind", pod="a"`
	for _, webhook := range []string{"/bind/{name}", "/guard"} {
		for _, code := range []string{"200", "400", "403", "404", "405", "413", "415", "429", "500", "503"} {
			series[`controller_runtime_webhook_requests_total{`+ours+`, webhook="`+webhook+`", code="`+code+`"}`] = aMinute
		}
		series[`controller_runtime_webhook_latency_seconds_bucket{`+ours+`, webhook="`+webhook+`", le="1"}`] = func(int) float64 { return 0 }
		series[`controller_runtime_webhook_latency_seconds_bucket{`+ours+`, webhook="`+webhook+`", le="+Inf"}`] = aMinute
	}
	for _, outcome := range []string{"bound", "malformed", "unavailable", "unmatched_denied"} {
		series[`classbind_decisions_total{`+ours+`, claim_kind="claims.example.org", outcome="`+outcome+`"}`] = aMinute
		series[`classbind_decisions_total{`+ours+`, claim_kind="", outcome="`+outcome+`"}`] = aMinute
	}
	series[`classbind_guard_decisions_total{`+ours+`, class_kind="classes.example.org", outcome="unavailable"}`] = aMinute
	series[`classbind_waits_total{`+ours+`, claim_kind="claims.example.org", outcome="refused"}`] = aMinute
}

// TestStranger asks Prometheus' own engine which critical alerts somebody can raise who reaches classbind's port, and is no API server.
func TestStranger(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		reason string
		change func(map[string]samples)
		want   []string
	}{
		"Healthy": {
			reason: "We should wake nobody while all is well.",
			change: func(map[string]samples) {},
		},
		"Stranger": {
			reason: "We should wake nobody for what a stranger asks.",
			change: stranger,
		},
		"CallsFail": {
			reason: "We should wake somebody where API servers count calls that fail.",
			change: func(series map[string]samples) {
				stranger(series)
				series[`apiserver_admission_webhook_rejection_count{name="claims.example.org.bind.classbind.io", type="admit", `+
					`error_type="calling_webhook_error"}`] = func(scrape int) float64 {
					return float64(scrape)
				}
			},
			want: []string{"ClassbindCallsFail"},
		},
		"Down": {
			reason: "We should wake somebody where no replica is there.",
			change: func(series map[string]samples) {
				for s := range healthy(now) {
					series[s] = func(int) float64 { return 0 }
				}
			},
			want: []string{"ClassbindDown", "ClassbindCertificateExpires"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			series := maps.Clone(healthy(now))
			tc.change(series)
			assert.ElementsMatch(t, tc.want, critical(t, now, series), tc.reason)
		})
	}
}

// critical alerts whose expression has a result after twenty minutes of a scrape each 30 s.
func critical(t *testing.T, now time.Time, series map[string]samples) (firing []string) {
	t.Helper()
	const every, scrapes = 30 * time.Second, 40
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	appender := db.Appender(t.Context())
	for text, value := range series {
		labels, err := parser.ParseMetric(text)
		require.NoError(t, err)
		for i := range scrapes {
			_, err := appender.Append(0, labels, now.Add(time.Duration(i+1-scrapes)*every).UnixMilli(), value(i))
			require.NoError(t, err)
		}
	}
	require.NoError(t, appender.Commit())

	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
	asked := 0
	for _, g := range rules(t) {
		for _, r := range g.Rules {
			if r.Labels["severity"] != "critical" {
				continue
			}
			asked++
			query, err := engine.NewInstantQuery(t.Context(), db, nil, r.Expr, now)
			require.NoError(t, err, r.Alert)
			result, err := query.Exec(t.Context()).Vector()
			require.NoError(t, err, r.Alert)
			if len(result) > 0 {
				firing = append(firing, r.Alert)
			}
			query.Close()
		}
	}
	require.NotZero(t, asked)
	return firing
}
