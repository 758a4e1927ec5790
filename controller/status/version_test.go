package status

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/selector"
)

// serving is an API server that prefers a version of every resource, and serves no other.
type serving struct {
	fixed
	version string
}

func (s serving) LookUpClaims(_ context.Context, k *v1alpha1.ClaimKind, _ ...string) (cluster.Resource, error) {
	found := cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Version: s.version}}
	switch read := k.ReadVersion(); {
	case s.version == "":
		return cluster.Resource{}, cluster.ErrNotInstalled
	case read != "" && read != s.version:
		return found, fmt.Errorf("%w, %q, but %s", cluster.ErrVersionNotServed, read, s.version)
	}
	return found, nil
}

func TestPinVersion(t *testing.T) {
	const name = "claims.example.org"
	entry := func(version string) []admissionregistrationv1.MutatingWebhook {
		return []admissionregistrationv1.MutatingWebhook{{
			Name:  name + v1alpha1.BindSuffix,
			Rules: []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{APIVersions: []string{version}}}},
		}}
	}
	for tcName, tc := range map[string]struct {
		reason       string
		spec, pinned string
		served       string
		entries      []admissionregistrationv1.MutatingWebhook
		conflict     bool
		version      string
		ready        string
	}{
		"Preferred":    {"We should pin the version that the API server prefers.", "", "", "v1", entry("v1"), false, "v1", v1alpha1.ReasonServed},
		"Pinned":       {"We should keep the pinned version.", "", "v1", "v1", entry("v1"), false, "v1", v1alpha1.ReasonServed},
		"Set":          {"We should follow the version of the spec.", "v2", "v1", "v2", entry("v2"), false, "v2", v1alpha1.ReasonServed},
		"SetToNone":    {"We should not pin what is not served: it may be a mistake.", "v9", "v1", "v1", entry("*"), false, "v1", v1alpha1.ReasonVersionNotServed},
		"NotInstalled": {"We should pin nothing before the resource is served.", "", "", "", nil, false, "", v1alpha1.ReasonNotInstalled},
		"NotServed": {
			"We should say that the pinned version is not served, and pin no other: the paths are not written for it.",
			"", "v1", "v2", entry("*"), false, "v1", v1alpha1.ReasonVersionNotServed,
		},
		"Conflict": {"We should say that another ClaimKind is served.", "", "", "v1", nil, true, "v1", v1alpha1.ReasonConflict},
	} {
		t.Run(tcName, func(t *testing.T) {
			k := controllertest.NewClaimKind(name)
			k.Spec.Version, k.Status.Version = tc.spec, tc.pinned
			c := &controllertest.Cached{ClaimKinds: []v1alpha1.ClaimKind{*k}, Configuration: &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: tc.entries}}
			inventory := selector.NewInventory()
			inventory.SetClaimKind(selector.NewClaimKind(k))
			if tc.conflict {
				older := controllertest.NewClaimKind("a")
				older.Spec.Resource = name
				inventory.SetClaimKind(selector.NewClaimKind(older))
			}
			inventory.Open()
			s := &Writer{
				Snapshot: inventory.Snapshot, Registration: serving{version: tc.served}, Claims: &latebinding.Claims{}, ClaimEntries: said{}, Client: c,
			}
			_, err := s.reconcileClaimKind(t.Context(), name)
			require.NoError(t, err, tc.reason)
			require.Len(t, c.Updated, 1, tc.reason)
			status := c.Updated[0].(*v1alpha1.ClaimKind).Status
			assert.Equal(t, tc.version, status.Version, tc.reason)
			ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			require.NotNil(t, ready)
			assert.Equal(t, tc.ready, ready.Reason, "%s %v", tc.reason, ready)
		})
	}
}
