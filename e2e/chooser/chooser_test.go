package chooser

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
)

func TestRank(t *testing.T) {
	t.Parallel()
	candidates := []*chooserv1.Candidate{
		{Id: "unknown", Fields: `{"spec":{"instanceType":"unknown","cpus":1}}`},
		{Id: "large", Fields: `{"spec":{"instanceType":"m5.2xlarge","cpus":8}}`},
		{Id: "small", Fields: `{"spec":{"instanceType":"m5.large","cpus":2}}`},
	}
	for name, tc := range map[string]struct {
		reason string
		prices Prices
		claim  string
		want   []string
	}{
		"Cheapest": {
			reason: "We should count the nodes that the claim needs.",
			prices: Prices{"m5.large": 0.1, "m5.2xlarge": 0.3},
			claim:  `{"spec":{"cpus":3}}`,
			want:   []string{"small", "large"},
		},
		"Many": {
			reason: "We should find that large nodes are cheaper for a large claim.",
			prices: Prices{"m5.large": 0.1, "m5.2xlarge": 0.3},
			claim:  `{"spec":{"cpus":16}}`,
			want:   []string{"large", "small"},
		},
		"Tie": {
			reason: "We should leave a tie in the order of the draw.",
			prices: Prices{"m5.large": 0.1, "m5.2xlarge": 0.1},
			claim:  `{"spec":{}}`,
			want:   []string{"large", "small"},
		},
		"NoPrices": {
			reason: "We should have no opinion without prices.",
			claim:  `{"spec":{"cpus":3}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Chooser{}
			require.NoError(t, c.Refresh(tc.prices))
			answer, err := c.Rank(t.Context(), &chooserv1.RankRequest{Claim: tc.claim, Candidates: candidates})
			require.NoError(t, err)
			assert.Equal(t, tc.want, answer.GetOrder().GetIds(), tc.reason)
			assert.Equal(t, tc.want == nil, answer.GetNoOpinion() != nil, tc.reason)
			status, err := c.Status(t.Context(), nil)
			require.NoError(t, err)
			assert.Equal(t, status.GetEpoch(), answer.GetEpoch(), "We should answer from the data that the status has.")
		})
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	epoch := func(prices Prices) string {
		c := &Chooser{}
		require.NoError(t, c.Refresh(prices))
		status, err := c.Status(t.Context(), nil)
		require.NoError(t, err)
		return status.GetEpoch()
	}
	assert.Equal(t, epoch(Prices{"a": 1, "b": 2}), epoch(Prices{"b": 2, "a": 1}), "We should have the same epoch with the same prices.")
	assert.NotEqual(t, epoch(Prices{"a": 1}), epoch(Prices{"a": 2}), "We should have another epoch with other prices.")
}
