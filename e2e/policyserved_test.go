package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestPolicyNotServed has API servers that do not know policies, or do not heed them. There,
// classbind gives the default class as to a kind with the defaulting Webhook.
func TestPolicyNotServed(t *testing.T) {
	long(t)
	t.Parallel()
	const resources = "admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false"
	var notServed map[string]string // An older API server knows neither.
	if policiesServed(t) {
		notServed = map[string]string{"runtime-config": resources, "feature-gates": "MutatingAdmissionPolicy=false"}
	}
	for name, tc := range map[string]struct {
		flags  map[string]string
		status metav1.ConditionStatus
		text   string
	}{
		"NotServed": {
			flags:  notServed,
			status: metav1.ConditionFalse, text: "does not serve v1 of MutatingAdmissionPolicy",
		},
		"NotInForce": {
			flags:  map[string]string{"disable-admission-plugins": "ServiceAccount,MutatingAdmissionPolicy"},
			status: metav1.ConditionTrue, text: "Class/usual",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.status == metav1.ConditionTrue {
				needsPolicies(t)
			}
			const group = "served.test"
			w := newWorld(t, controlplane.Options{APIServerFlags: tc.flags})
			r := w.serve(t)
			w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster")
			w.apply(t, vendor(group)+claimKind("claims."+group, "{defaulting: Policy}")+classKind("classes."+group, "{claimKinds: [claims."+group+"]}")+
				class(group, "Class", "usual", isDefault))
			w.awaitClaims(t, "claims."+group)
			w.awaitClasses(t, "classes."+group, 1)
			w.awaitCondition(t, &v1alpha1.ClaimKind{}, "claims."+group, v1alpha1.ConditionDefaultedByPolicy, tc.status, tc.text)
			before := calls(t, r)
			claim := unopinionated(group, "claim")
			require.NoError(t, w.Create(t.Context(), claim))
			assert.Equal(t, "Class/usual", classOf(claim), "We should give the default class.")
			assert.Equal(t, 1, calls(t, r)-before)
			assert.Never(t, func() bool {
				return strings.Count(r.log.String(), "olicy") > 5 || strings.Contains(r.log.String(), `"ERROR"`)
			}, 5*time.Second, time.Second, "We should not complain again and again.")
		})
	}
}
