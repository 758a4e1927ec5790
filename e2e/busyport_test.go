package e2e

import (
	"net"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/classbind"
)

// TestBusyPort starts replicas whose ports another process has.
func TestBusyPort(t *testing.T) {
	t.Parallel()
	if inPods() {
		t.Skip("It starts processes beside the control plane.")
	}
	w := sharedWorld(t) // Its replica leads, so that these write nothing.
	busy, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer func() { _ = busy.Close() }()
	flags := []string{"--webhook-bind-address", "--health-probe-bind-address", "--metrics-bind-address", "--pprof-bind-address"}
	free, err := classbind.FreePorts(len(flags))
	require.NoError(t, err)
	for _, flag := range flags {
		t.Run(flag, func(t *testing.T) {
			args := []string{"serve", "--kubeconfig=" + w.kubeconfig, "--namespace=" + classbind.Namespace}
			for i, other := range flags {
				address := "localhost:" + free[i]
				if other == flag {
					address = busy.Addr().String()
				}
				args = append(args, other+"="+address)
			}
			out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput() //nolint:gosec // It runs the command under test.
			require.Error(t, err)
			assert.Contains(t, string(out), "error: cannot listen: ", "We should not blame the cluster.")
			assert.Contains(t, string(out), busy.Addr().String(), "We should name the address.")
		})
	}
}
