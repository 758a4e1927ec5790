package status

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

// TestNotes has what people may want to know, and is not broken.
func TestNotes(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   string
	}{
		"NoDefault": {
			"We should not take for broken what may well be meant.",
			func(w *world) {
				w.claimKind.Status.Conditions = append(w.claimKind.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionSingleDefault, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoDefault, Message: "a claim without a selector finds no class"})
			},
			"claimkind/databases.example.org: SingleDefault is True (NoDefault): a claim without a selector finds no class",
		},
		"ExcludedAndAsksForNothing": {
			"We should not take a claim for lost that nobody asked to bind.",
			func(w *world) { w.more = append(w.more, object("example.org/v1", "Database", "kube-system", "plain")) },
			"claimkind/databases.example.org: 1 claim has no class and no selector, in namespaces that are excluded: kube-system/plain",
		},
		"Drain": {
			"We should not take a drain for broken that the PodDisruptionBudget allows.",
			func(w *world) {
				w.deployment.Status.ReadyReplicas = 1
				waits(w.pod("b"), "ContainerCreating")
			},
			"only 1 of 2 replicas are ready, as in a drain: if it stays so, kubectl describe pods --namespace classbind-system --selector app.kubernetes.io/name=classbind, and kubectl logs with the same",
		},
		"NeedsWebhook": {
			"We should find nothing wrong where we bind the claims, and not the API server.",
			func(w *world) {
				w.claimKind.Status.Conditions = append(w.claimKind.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionDefaultedByPolicy, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNeedsWebhook, Message: "why"})
			},
			"claimkind/databases.example.org: DefaultedByPolicy is False (NeedsWebhook): why",
		},
		"SchemaUnknown": {
			"We should tell what nobody can know.",
			func(w *world) {
				w.claimKind.Status.Conditions = append(w.claimKind.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionPathsValid, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonSchemaUnknown, Message: "it allows anything"})
			},
			"claimkind/databases.example.org: PathsValid is Unknown (SchemaUnknown): it allows anything",
		},
		"RelatedNotInstalled": {
			"We should tell of related objects that cannot be there.",
			func(w *world) {
				w.claimKind.Status.Conditions = append(w.claimKind.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionRelatedKnown, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNotInstalled, Message: "no plans"})
			},
			"claimkind/databases.example.org: RelatedKnown is True (NotInstalled): no plans",
		},
		"Ambiguous": {
			"We should tell of a class kind that only some claim kinds are offered.",
			func(w *world) {
				w.classKind.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAmbiguousReference, Message: "not to others"}}
			},
			"classkind/golds.example.org: Ready is True (AmbiguousReference): not to others",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			report, err := w.report(t)
			require.NoError(t, err)
			require.NoError(t, report.exit(), tc.reason)
			table, err := report.table()
			require.NoError(t, err)
			assert.Contains(t, string(table), "Note: "+tc.want+"\n", tc.reason)
		})
	}
}
