package status

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

// TestDefaultedByPolicy has a claim kind that asks for it, and reasons why it has no policy.
func TestDefaultedByPolicy(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		conditioned string
		denied      []string
		want, notes []string
	}{
		"Written": {reason: "We should find nothing wrong with a policy."},
		"NeedsWebhook": {
			reason: "We should find nothing wrong where we bind the claims.", conditioned: v1alpha1.ReasonNeedsWebhook,
			notes: []string{"claimkind/databases.example.org: why (NeedsWebhook)"},
		},
		"NotPermitted": {
			reason: "We should tell which right is missing.", conditioned: v1alpha1.ReasonNotPermitted, denied: []string{"get golds"},
			want: []string{
				"claimkind/databases.example.org: DefaultedByPolicy is False (NotPermitted): why",
				"classkind/golds.example.org: system:serviceaccount:classbind-system:classbind may not get golds of example.org",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.claimKind.Spec.Defaulting, w.denied = v1alpha1.DefaultingPolicy, tc.denied
			w.writeEntries(t, w.secret.Data["ca.crt"])
			if tc.conditioned != "" {
				w.claimKind.Status.Conditions = append(w.claimKind.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionDefaultedByPolicy, Status: metav1.ConditionFalse, Reason: tc.conditioned, Message: "why",
				})
			}
			report, err := w.report(t)
			require.NoError(t, err)
			assertFindings(t, report, tc.reason, tc.want)
			var notes []string
			for _, s := range report.Sections {
				notes = append(notes, s.Notes...)
			}
			assert.Subset(t, notes, tc.notes, tc.reason)
		})
	}
	w := newWorld(t)
	w.denied = []string{"get golds"}
	report, err := w.report(t)
	require.NoError(t, err)
	assertFindings(t, report, "We should not need to get classes without a policy.", nil)
}
