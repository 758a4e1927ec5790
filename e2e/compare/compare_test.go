package compare

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChiSquare(t *testing.T) {
	for name, tc := range map[string]struct {
		reason          string
		counts, weights []int
		want            float64
	}{
		"Exact":   {"We should find no difference from what is expected.", []int{30, 10, 10}, []int{3, 1, 1}, 0},
		"Equal":   {"We should add the squares, each by what is expected.", []int{12, 8}, []int{1, 1}, .8},
		"Weights": {"We should expect counts in proportion to weights.", []int{20, 20}, []int{3, 1}, 100./30 + 10},
		"Never":   {"We should count a class that is never drawn.", []int{20, 0}, []int{1, 1}, 20},
	} {
		t.Run(name, func(t *testing.T) { assert.InDelta(t, tc.want, chiSquare(tc.counts, tc.weights), 1e-9, tc.reason) })
	}
}

func TestRender(t *testing.T) {
	took := func(millis ...time.Duration) (c creates) {
		for _, ms := range millis {
			c.took = append(c.took, ms*time.Millisecond)
		}
		c.ratio = 1.5
		return c
	}
	asked := &contender{name: "asked", server: &service{}, result: result{
		creates: [2]creates{took(3, 4, 9), took(6)}, chiSquare: 8.25, dryRuns: 100, retries: 99, unmatched: "no class matches",
		outages: [2]outage{{failed: 12, unbound: 3, lasted: 1250 * time.Millisecond}},
	}}
	policy := &contender{name: "policy", result: result{unmatched: "no such key"}}
	baseline := &contender{name: "baseline", result: result{creates: [2]creates{took(2)}}}
	table := render(Settings{Draws: 2000, Repeated: 100}, []*contender{baseline, asked, policy})
	for _, want := range []string{
		"| measured | baseline | asked | policy | by |\n|---|---|---|---|---|\n",
		"| create, one client: p50 and p99 in ms | 2.00, 2.0 | 4.00, 9.0 | 0.00, 0.0 | [`creates.go`](../e2e/compare/creates.go) |\n",
		"baseline | 1.50 | 1.50 | 0.00 |", " |  | 12, 3, 1.2 | no process |", " |  | 8.2 | 0.0 |", " |  | 100 | 0 |", " |  | 99 | 0 |",
		"```text\nasked:\nno class matches\n\npolicy:\nno such key\n```\n",
	} {
		assert.Contains(t, table, want, "We should write what was measured.")
	}

	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600))
	require.NoError(t, Write(page, begin+"new\n"+end))
	require.NoError(t, Write(page, begin+"newer\n"+end), "We should leave the lines between which the table stands.")
	got, err := os.ReadFile(page) //nolint:gosec // The test has written it.
	require.NoError(t, err)
	assert.Equal(t, "before\n"+begin+"newer\n"+end+"after\n", string(got))
	require.NoError(t, os.WriteFile(page, []byte("nothing\n"+end), 0o600))
	require.ErrorContains(t, Write(page, ""), "lacks the lines", "We should not write into a page without a place for the table.")
}
