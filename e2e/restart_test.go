package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/controlplane"
)

// TestRestart kills replicas, whose successors serve their certificates at once where the
// API servers have long known the CA, and only there.
func TestRestart(t *testing.T) {
	long(t)
	const group = "restart.test"
	w := newWorld(t, controlplane.Options{})
	w.resources(t, "Claim claims."+group+" Namespaced", "Red reds."+group+" Cluster")
	w.apply(t, vendor(group)+claimKind("claims."+group, "{}")+classKind("reds."+group, "{claimKinds: [claims."+group+"]}"))
	r := w.serve(t)
	w.apply(t, class(group, "Red", "gold", ""))
	w.awaitClaims(t, "claims."+group)
	w.awaitClasses(t, "reds."+group, 1)
	// Its successors are behind the same address, as behind a Service.
	address := []string{"--webhook-url=" + r.URL, "--webhook-bind-address=" + strings.TrimPrefix(r.URL, "https://")}
	r.Kill()

	r = w.serve(t, address...)
	assert.Contains(t, r.log.String(), holdsBack, "We should give the API servers time to see entries that were just written.")
	for begin := time.Now(); strings.Contains(r.log.String(), holdsBack); {
		require.Less(t, time.Since(begin), patience, "We should not wait where the entries have had our CA for long.")
		r.Kill()
		killed := time.Now()
		r = w.serve(t, address...)
		t.Logf("ready %s after it was killed", time.Since(killed))
	}
	bound, _, err := w.create(t, claim(group, "afterwards"))
	require.NoError(t, err, "We should answer the API server as soon as we are ready.")
	assert.Equal(t, "Red/gold", classOf(bound))
}

// holdsBack is what a replica logs that waits before it serves its certificate.
const holdsBack = "for less than 5s"
