package onedefault

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

func TestLeaseName(t *testing.T) {
	long := strings.Repeat("n", validation.DNS1123LabelMaxLength)
	kind := strings.Repeat("k", 178)
	for name, tc := range map[string]struct {
		reason string
		seat   inventory.Seat
		want   string
	}{
		"Cluster": {"We should name a claim kind.", inventory.Seat{ClaimKind: "claims.example.org"}, "default.claims.example.org"},
		"Core":    {"We should name a core kind, which has no dot.", inventory.Seat{ClaimKind: "services"}, "default.services"},
		"Namespaced": {
			"We should name the namespace first, which has no dot.",
			inventory.Seat{ClaimKind: "claims.example.org", Namespace: "team"},
			"default-in.team.claims.example.org",
		},
		"CoreNamespaced": {
			"We should name a core kind in a namespace.", inventory.Seat{ClaimKind: "services", Namespace: "team"}, "default-in.team.services",
		},
		"Confusing": {"We should not take a claim kind for a namespace.", inventory.Seat{ClaimKind: "in.team.claims"}, "default.in.team.claims"},
		"ConfusingToo": {
			"We should not take a namespace for ours.",
			inventory.Seat{ClaimKind: "default.in", Namespace: "default"},
			"default-in.default.default.in",
		},
		"OfTheLeader": {"We should not take the leader's Lease.", inventory.Seat{ClaimKind: v1beta1.LeaderLease}, "default.classbind-leader"},
		"Partitioned": {
			"We should hash a partition, which may be any text.",
			inventory.Seat{ClaimKind: "claims.example.org", Partition: "disk.csi/\n.Ä"},
			"default-of.1cc3cfedbbce33ce128db1e690c729b4.claims.example.org",
		},
		"PartitionedInANamespace": {
			"We should hash the namespace, too.",
			inventory.Seat{ClaimKind: "claims.example.org", Namespace: "team", Partition: "disk"},
			"default-of.d3cc94e208d5c31b332e1360cc491eaf.claims.example.org",
		},
		"NotThatNamespace": {
			"We should not take the beginning of a partition for a namespace.",
			inventory.Seat{ClaimKind: "claims.example.org", Partition: "teamdisk"},
			"default-of.77ae6969d4d74b66e340309e8cbaac51.claims.example.org",
		},
		"Longest": {
			"We should have room for the longest names.", inventory.Seat{ClaimKind: kind, Namespace: long}, "default-in." + long + "." + kind,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := LeaseName(tc.seat)
			assert.Equal(t, tc.want, got, tc.reason)
			assert.Empty(
				t, validation.IsDNS1123Subdomain(strings.ReplaceAll(got, kind, strings.Repeat("k.", 88)+"kk")),
				"We should have a name that the API server takes.",
			)
			assert.Equal(t, tc.seat.ClaimKind, ClaimKindOf(got), "We should know our own.")
		})
	}
	for _, name := range []string{
		v1beta1.LeaderLease, "default", "default.", "default-in.team", "default-in..claims", "default-in.team.", "default-of.1f",
		"default-of..claims", "claims.example.org",
	} {
		assert.Empty(t, ClaimKindOf(name), "We should not take %q for ours.", name)
	}
}
