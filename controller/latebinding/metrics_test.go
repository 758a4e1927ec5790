package latebinding

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
)

func TestClaimMetrics(t *testing.T) {
	claims := map[string]*claimSummary{}
	m := NewMetrics(nil)
	m.claims, m.classes = func() map[string]*claimSummary { return claims }, func(func(*selector.Classes, kindCounts)) {}
	require.NoError(t, m.Register())
	t.Cleanup(func() { metrics.Registry.Unregister(m) })
	assert.Empty(t, controllertest.Scraped(t, metrics.Registry), "We should count nothing while we watch no claims.")

	claims["claims.example.org"] = &claimSummary{counts: ClaimCounts{Bound: 7, Waiting: 3}, binds: true}
	want := map[string]float64{
		"claims claim_kind=claims.example.org state=bound": 7, "claims claim_kind=claims.example.org state=waiting": 3,
		"late_bindings_total claim_kind=claims.example.org outcome=bound": 0, "late_bindings_total claim_kind=claims.example.org outcome=changed": 0,
		"late_bindings_total claim_kind=claims.example.org outcome=failed": 0, "late_bindings_total claim_kind=claims.example.org outcome=panicked": 0,
	}
	assert.Equal(t, want, controllertest.Scraped(t, metrics.Registry), "We should have all outcomes before there is any binding.")

	claims["claims.example.org"].binds = false
	delete(want, "claims claim_kind=claims.example.org state=waiting")
	assert.Equal(t, want, controllertest.Scraped(t, metrics.Registry), "We should leave it to the leader to say how many wait.")

	m.tried("claims.example.org", lateBound)
	m.tried("claims.example.org", lateBound)
	m.tried("claims.example.org", lateFailed)
	clear(claims)
	assert.Equal(t, map[string]float64{
		"late_bindings_total claim_kind=claims.example.org outcome=bound": 2, "late_bindings_total claim_kind=claims.example.org outcome=changed": 0,
		"late_bindings_total claim_kind=claims.example.org outcome=failed": 1, "late_bindings_total claim_kind=claims.example.org outcome=panicked": 0,
	}, controllertest.Scraped(t, metrics.Registry), "We should keep counters when we watch no claims any more.")
}
