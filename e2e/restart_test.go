package e2e

import (
	"os/exec"
	"strings"
	"syscall"
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
	w, r := servedWorld(t, controlplane.Options{})
	w.register(t, group, "{}", class(group, "Class", "gold", ""))
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
	w.binds(t, claim(group, "afterwards"), "Class/gold", "We should answer the API server as soon as we are ready.")
}

// TestStopsWithoutAPIServer ends a replica whose API server takes its requests and answers none, in the time that its pod has.
func TestStopsWithoutAPIServer(t *testing.T) {
	long(t)
	const grace = 30 * time.Second // terminationGracePeriodSeconds
	w, r := servedWorld(t, controlplane.Options{})
	w.register(t, "stops.test", "{}", class("stops.test", "Class", "gold", ""))
	signal := func(name string) {
		output(t, exec.CommandContext(t.Context(), "pkill", name, "-f", "kube-apiserver.*"+w.plane.Dir)) //nolint:gosec // It is ours.
	}
	signal("-STOP")
	defer signal("-CONT")
	late, begin := lateness(t), time.Now()
	require.NoError(t, syscall.Kill(r.PID(), syscall.SIGTERM))
	<-r.Ended()
	took := time.Since(begin)
	t.Logf("It took %s to stop.", took.Round(100*time.Millisecond))
	assert.Less(t, took, grace+stretch*late(), "The kubelet should kill no replica that stops.")
}

// holdsBack is what a replica logs that waits before it serves its certificate.
const holdsBack = "for less than 5s"
