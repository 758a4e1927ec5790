package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/race"
)

// TestRace is the short form of make race. It has the machine to itself, because
// a request that is starved takes longer than the API servers are given here.
// That the judge would see a double default is tested beside it.
func TestRace(t *testing.T) {
	long(t)
	if inPods() {
		t.Skip("It needs control planes of its own, with replicas as processes beside them.")
	}
	scenarios := race.ShortScenarios()
	timing := scenarios[0].Timing
	commands := race.Commands{0: command}
	require.NoError(t, commands.Build(t.Context(), t.TempDir(), timing, os.Stderr))
	cluster, err := race.NewCluster(t.Context(), 2, timing.Request, os.Stderr)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cluster.Stop()) })
	fleet, err := cluster.Deploy(t.Context(), 3, timing, commands)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, fleet.Stop(), "We should see the replicas end well.") })
	for _, s := range scenarios {
		rounds := map[string]int{"race": 12, "partitions": 12, "twins": 12, "forger": 12, "chaos": 6}[s.Name]
		t.Run(s.Name, func(t *testing.T) {
			result, err := fleet.Race(t.Context(), s, rounds, 16)
			require.NoError(t, err)
			assert.Equal(t, race.Result{Rounds: rounds}, result, "We should see no double default, and every loser told why.")
		})
	}
}
