package e2e

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Critical values of the chi-square distribution for p = 0.001. What is seeded
// by claims is the same in every run; the two tests of fresh seeds draw twice
// before they fail, which chance makes them do one time in a million.
const (
	chiSquare2 = 13.816 // two degrees of freedom
	chiSquare9 = 27.877 // nine
)

// TestFairness draws often, $CLAIMS times with each seed: of 300 classes of three kinds, 200, 90 and 10, match
// 6, 3 and 1. Each class is to get its share, whatever its kind.
func TestFairness(t *testing.T) {
	t.Parallel()
	claims := 400
	if text := os.Getenv("CLAIMS"); text != "" {
		var err error
		claims, err = strconv.Atoi(text)
		require.NoError(t, err, "CLAIMS is how many claims to draw for with each seed.")
	}
	w := sharedWorld(t)
	groups := []string{"fair.test", "fresh.test", "heavy.test"}
	manifest := vendor("fair.test") + claimKind("claims.fair.test", "{}") +
		claimKind("claims.fresh.test", "{seed: Request}") + claimKind("claims.heavy.test", "{strategy: HighestWeight}")
	w.resources(t, "Claim claims.fair.test Namespaced", "Claim claims.fresh.test Namespaced", "Claim claims.heavy.test Namespaced",
		"Large larges.fair.test Cluster", "Medium mediums.fair.test Cluster", "Small smalls.fair.test Cluster")
	evenly, byWeight := map[string]float64{}, map[string]float64{}
	for _, k := range []struct {
		kind                   string
		classes, match, weight int
	}{{"Large", 200, 6, 6}, {"Medium", 90, 3, 3}, {"Small", 10, 1, 1}} {
		manifest += classKind(strings.ToLower(k.kind)+"s.fair.test", "{claimKinds: [claims.fair.test, claims.fresh.test, claims.heavy.test]}")
		for i := range k.classes {
			name, metadata := fmt.Sprint("class-", i), "labels: {tier: other}, "
			switch {
			case i < k.match:
				metadata = "labels: {tier: gold}, "
				evenly[k.kind+"/"+name] = 0.1
			case i == k.match:
				metadata = fmt.Sprintf("labels: {tier: weighed}, annotations: {resourceclass.crossplane.io/weight: '%d'}, ", k.weight)
				byWeight[k.kind+"/"+name] = float64(k.weight) / 10
			}
			manifest += class("fair.test", k.kind, name, metadata)
		}
	}
	w.apply(t, manifest)
	for _, group := range groups {
		w.awaitClaims(t, "claims."+group)
	}
	w.awaitClasses(t, "larges.fair.test", 200)
	w.awaitClasses(t, "mediums.fair.test", 90)
	w.awaitClasses(t, "smalls.fair.test", 10)

	for name, tc := range map[string]struct {
		reason      string
		group, tier string
		claims      int
		want        map[string]float64
		bound       float64
	}{
		"SeedClaim":       {"We should give each class a tenth of the claims, seeded by the claim.", "fair.test", "gold", claims, evenly, chiSquare9},
		"SeedRequest":     {"We should give each class a tenth of the claims, seeded afresh.", "fresh.test", "gold", claims, evenly, chiSquare9},
		"WeightedClaim":   {"We should give shares by weight, seeded by the claim.", "fair.test", "weighed", claims, byWeight, chiSquare2},
		"WeightedRequest": {"We should give shares by weight, seeded afresh.", "fresh.test", "weighed", claims, byWeight, chiSquare2},
		"HighestWeight":   {"We should take only the heaviest.", "heavy.test", "weighed", 100, map[string]float64{"Large/class-6": 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var got map[string]int
			statistic := math.Inf(1)
			for tries := 0; statistic > tc.bound && tries < 2; tries++ {
				got, statistic = w.draws(t, tc.group, tc.tier, tc.claims), 0
				for class, share := range tc.want {
					expected := share * float64(tc.claims)
					statistic += (float64(got[class]) - expected) * (float64(got[class]) - expected) / expected
				}
			}
			assert.Len(t, got, len(tc.want), tc.reason)
			assert.LessOrEqual(t, statistic, tc.bound, "%s %v", tc.reason, got)
			t.Logf("chi-square %.2f, at most %.2f for p > 0.001: %v", statistic, tc.bound, got)
		})
	}
}

// draws counts the classes that so many claims get, without storing them.
func (w *world) draws(t *testing.T, group, tier string, claims int) map[string]int {
	t.Helper()
	got := make([]string, claims)
	var creations errgroup.Group
	creations.SetLimit(8)
	for i := range claims {
		creations.Go(func() error {
			claim := &unstructured.Unstructured{Object: map[string]any{
				"spec": map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"tier": tier}}},
			}}
			claim.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Claim"})
			claim.SetNamespace("default")
			claim.SetName(fmt.Sprint("claim-", i))
			err := w.Create(t.Context(), claim, client.DryRunAll)
			got[i] = classOf(claim)
			return err
		})
	}
	require.NoError(t, creations.Wait())
	counts := map[string]int{}
	for _, class := range got {
		counts[class]++
	}
	return counts
}
