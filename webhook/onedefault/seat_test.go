package onedefault

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

func TestLeaseName(t *testing.T) {
	long := strings.Repeat("n", validation.DNS1123LabelMaxLength)
	kind := strings.Repeat("k", 178)
	for name, tc := range map[string]struct {
		reason string
		seat   selector.Seat
		want   string
	}{
		"Cluster":        {"We should name a claim kind.", selector.Seat{ClaimKind: "claims.example.org"}, "default.claims.example.org"},
		"Core":           {"We should name a core kind, which has no dot.", selector.Seat{ClaimKind: "services"}, "default.services"},
		"Namespaced":     {"We should name the namespace first, which has no dot.", selector.Seat{ClaimKind: "claims.example.org", Namespace: "team"}, "default-in.team.claims.example.org"},
		"CoreNamespaced": {"We should name a core kind in a namespace.", selector.Seat{ClaimKind: "services", Namespace: "team"}, "default-in.team.services"},
		"Confusing":      {"We should not take a claim kind for a namespace.", selector.Seat{ClaimKind: "in.team.claims"}, "default.in.team.claims"},
		"ConfusingToo":   {"We should not take a namespace for ours.", selector.Seat{ClaimKind: "default.in", Namespace: "default"}, "default-in.default.default.in"},
		"OfTheLeader":    {"We should not take the leader's Lease.", selector.Seat{ClaimKind: v1alpha1.LeaderLease}, "default.classbind-leader"},
		"Longest":        {"We should have room for the longest names.", selector.Seat{ClaimKind: kind, Namespace: long}, "default-in." + long + "." + kind},
	} {
		t.Run(name, func(t *testing.T) {
			got := LeaseName(tc.seat)
			assert.Equal(t, tc.want, got, tc.reason)
			assert.Empty(t, validation.IsDNS1123Subdomain(strings.ReplaceAll(got, kind, strings.Repeat("k.", 88)+"kk")), "We should have a name that the API server takes.")
			seat, ours := SeatOf(got)
			assert.True(t, ours)
			assert.Equal(t, tc.seat, seat, "We should read what we wrote.")
		})
	}
	for _, name := range []string{v1alpha1.LeaderLease, "default", "default.", "default-in.team", "default-in..claims", "default-in.team.", "claims.example.org"} {
		_, ours := SeatOf(name)
		assert.False(t, ours, "We should not take %q for ours.", name)
	}
}
