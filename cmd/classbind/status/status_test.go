package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

func TestStatus(t *testing.T) {
	label := func(o client.Object, key, value string) { o.SetLabels(map[string]string{key: value}) }
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   []string // each finding, as SECTION: WHERE: a part of WHAT
	}{
		"Nothing": {
			reason: "We should find nothing in an installation that works.",
			change: func(*world) {},
		},
		"PathWithTypo": {
			reason: "We should name the path, and not that the kind is not ready for it.",
			change: func(w *world) {
				w.claimKind.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReferencePruned, Message: "so it is"},
					{Type: v1alpha1.ConditionPathsValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReferencePruned, Message: "reference.path: the schema has no field .spec.clasRef"},
				}
			},
			want: []string{"kinds: claimkind/databases.example.org: PathsValid is False (ReferencePruned): reference.path: the schema has no field .spec.clasRef"},
		},
		"ExpressionInvalid": {
			reason: "We should name the expression, and not what follows from it.",
			change: func(w *world) {
				w.claimKind.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidExpression, Message: "so it is"},
					{Type: v1alpha1.ConditionLateBinding, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidExpression, Message: "so it is"},
					{Type: v1alpha1.ConditionExpressionsValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidExpression, Message: "spec.bindWhen: line 1, column 7: no"},
				}
				w.classKind.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonServed},
					{Type: v1alpha1.ConditionExpressionsValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonExpressionFailed, Message: "Gold/a"},
				}
			},
			want: []string{
				"kinds: claimkind/databases.example.org: ExpressionsValid is False (InvalidExpression): spec.bindWhen: line 1, column 7: no",
				"kinds: classkind/golds.example.org: ExpressionsValid is False (ExpressionFailed): Gold/a",
			},
		},
		"RelatedUnknown": {
			reason: "We should say why related objects are not known, and not what follows from it.",
			change: func(w *world) {
				w.claimKind.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRelatedMissing, Message: "so it is"},
					{Type: v1alpha1.ConditionRelatedKnown, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSynced, Message: "no answer"},
				}
			},
			want: []string{"kinds: claimkind/databases.example.org: RelatedKnown is False (NotSynced): no answer"},
		},
		"NotReady": {
			reason: "We should say why a kind is not ready, what else is wrong with it, and nothing that follows.",
			change: func(w *world) {
				w.classKind.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSynced, Message: "no"},
					{Type: v1alpha1.ConditionGuarded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotConfigured},
					{Type: v1alpha1.ConditionClaimKindsRegistered, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotRegistered, Message: "others"},
				}
				w.classes.Webhooks = nil
			},
			want: []string{
				"kinds: classkind/golds.example.org: Ready is False (NotSynced): no",
				"kinds: classkind/golds.example.org: ClaimKindsRegistered is False (NotRegistered): others",
			},
		},
		"NotReadyForAnotherReason": {
			reason: "We should not take for a consequence what has a cause of its own.",
			change: func(w *world) {
				w.claimKind.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTooLarge, Message: "no room"},
					{Type: v1alpha1.ConditionClassKindsRead, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotPermitted, Message: "no right"},
				}
			},
			want: []string{
				"kinds: claimkind/databases.example.org: Ready is False (TooLarge): no room",
				"kinds: claimkind/databases.example.org: ClassKindsRead is False (NotPermitted): no right",
			},
		},
		"Conditions": {
			reason: "We should find each condition that is not met, once.",
			change: func(w *world) {
				w.classKind.Status.Conditions = w.classKind.Status.Conditions[:1]
				for _, condition := range []string{
					v1alpha1.ConditionGuarded, v1alpha1.ConditionWeightsValid, v1alpha1.ConditionLabelsHeld, v1alpha1.ConditionMarksValid, v1alpha1.ConditionClaimKindsRegistered,
				} {
					w.classKind.Status.Conditions = append(w.classKind.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "Is"})
				}
				for _, condition := range []string{
					v1alpha1.ConditionSingleDefault, v1alpha1.ConditionPathsValid, v1alpha1.ConditionSelectorsHeeded, v1alpha1.ConditionLateBinding, v1alpha1.ConditionClaimsCounted,
				} {
					w.claimKind.Status.Conditions = append(w.claimKind.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "Is"})
				}
				w.classes.Webhooks = nil
			},
			want: []string{
				"kinds: claimkind/databases.example.org: SingleDefault is False", "kinds: claimkind/databases.example.org: PathsValid is False",
				"kinds: claimkind/databases.example.org: SelectorsHeeded is False", "kinds: claimkind/databases.example.org: LateBinding is False",
				"kinds: claimkind/databases.example.org: ClaimsCounted is False", "kinds: classkind/golds.example.org: Guarded is False",
				"kinds: classkind/golds.example.org: WeightsValid is False", "kinds: classkind/golds.example.org: LabelsHeld is False",
				"kinds: classkind/golds.example.org: MarksValid is False", "kinds: classkind/golds.example.org: ClaimKindsRegistered is False",
			},
		},
		"DefaultCordoned": {
			reason: "We should find a default class that no claim gets, which is one default all the same.",
			change: func(w *world) {
				w.claimKind.Status.Conditions = append(w.claimKind.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionSingleDefault, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDefaultCordoned, Message: "the default class is cordoned",
				})
			},
			want: []string{"kinds: claimkind/databases.example.org: SingleDefault is True (DefaultCordoned): the default class is cordoned"},
		},
		"DefaultOfWeightZero": {
			reason: "We should find a default that no claim gets.",
			change: func(w *world) { w.gold.SetAnnotations(map[string]string{"default": "true", "weight": "0"}) },
			want: []string{
				"kinds: claimkind/databases.example.org: with WeightedRandom, no claim gets a default class of weight 0: Gold/gold",
			},
		},
		"NeverLookedAt": {
			reason: "We should not take silence for a good sign.",
			change: func(w *world) { w.claimKind.Status.Conditions = nil },
			want:   []string{"kinds: claimkind/databases.example.org: no leader has looked at it"},
		},
		"CRDGone": {
			reason: "We should say that a resource is not served, once.",
			change: func(w *world) {
				delete(w.served, databases)
				w.claimKind.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotInstalled, Message: "no such resource"}}
			},
			want: []string{"kinds: claimkind/databases.example.org: Ready is False (NotInstalled): no such resource"},
		},
		"NoReplica": {
			reason: "We should say that no replica is ready, and not that none leads, either.",
			change: func(w *world) {
				w.deployment.Status.ReadyReplicas = 0
				w.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Minute)}
			},
			want: []string{"replicas: deployments/classbind-system/classbind: no replica is ready, of 2"},
		},
		"NoLeader": {
			reason: "We should say that none leads of those that are ready.",
			change: func(w *world) { w.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Minute)} },
			want:   []string{"replicas: leases/classbind-system/classbind-leader: no replica leads, so nobody keeps the entries, the status and the CA; the last that led was replica-1"},
		},
		"OneReplicaOfTwo": {
			reason: "We should say that a replica is missing, and why.",
			change: func(w *world) {
				w.deployment.Status.ReadyReplicas = 1
				waits(w.pod("b"), "ImagePullBackOff")
				w.pod("a")
			},
			want: []string{"replicas: deployments/classbind-system/classbind: only 1 of 2 replicas are ready: pod b: ImagePullBackOff"},
		},
		"TwoReplicasOfFour": {
			reason: "We should not take for a drain what it may not do.",
			change: func(w *world) { w.deployment.Spec.Replicas = new(int32(4)) },
			want:   []string{"replicas: deployments/classbind-system/classbind: only 2 of 4 replicas are ready"},
		},
		"RolloutStuck": {
			reason: "We should say that a rollout does not go on while the pods of before are ready.",
			change: func(w *world) {
				w.deployment.Status.Replicas, w.deployment.Status.UpdatedReplicas = 3, 1
				w.deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
				waits(w.pod("c"), "ErrImagePull")
			},
			want: []string{"replicas: deployments/classbind-system/classbind: its rollout does not go on: 1 of 2 replicas are updated: pod c: ErrImagePull"},
		},
		"OutsideTheCluster": {
			reason: "We should find nothing wrong with a Deployment that nobody runs, beside a replica that leads.",
			change: func(w *world) { w.deployment.Status = appsv1.DeploymentStatus{} },
		},
		"ScaledToNone": {
			reason: "We should say that it is scaled to 0.",
			change: func(w *world) { w.deployment.Spec.Replicas = new(int32(0)) },
			want:   []string{"replicas: deployments/classbind-system/classbind: it is scaled to 0"},
		},
		"EntryGone": {
			reason: "We should miss an entry.",
			change: func(w *world) { w.claims.Webhooks, w.classes.Webhooks = w.claims.Webhooks[1:], nil },
			want: []string{
				"webhook entries: mutatingwebhookconfigurations/zz-classbind: claims of databases.example.org are not bound: it has no entry",
				"webhook entries: validatingwebhookconfigurations/classbind: a second default class of golds.example.org is not refused: it has no entry",
			},
		},
		"ConfigurationGone": {
			reason: "We should say that a webhook configuration is not there.",
			change: func(w *world) { w.classes.Name = "others" },
			want:   []string{"webhook entries: validatingwebhookconfigurations/classbind: there is no such configuration"},
		},
		"NamespaceExcluded": {
			reason: "We should find claims that nobody binds, and none that has its class.",
			change: func(w *world) {
				unbound := asking(t, "team", "unbound")
				excluded := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
				w.claimKind.Spec.NamespaceSelector.MatchLabels = map[string]v1alpha1.LabelValue{"bind": "yes"}
				selected := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
				label(selected, "bind", "yes")
				w.more = append(w.more, unbound, excluded, selected, asking(t, "other", "waits"))
			},
			want: []string{"claims: claimkind/databases.example.org: 1 claim has no class, in namespaces that are excluded: team/unbound"},
		},
		"ManyExcluded": {
			reason: "We should name a few of many claims.",
			change: func(w *world) {
				w.claimKind.Spec.NamespaceSelector.MatchLabels = map[string]v1alpha1.LabelValue{"bind": "yes"}
				for n := range 7 {
					namespace := fmt.Sprint("team-", n)
					w.more = append(w.more, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, asking(t, namespace, "unbound"))
				}
			},
			want: []string{"7 claims have no class, in namespaces that are excluded: team-0/unbound, team-1/unbound, team-2/unbound, team-3/unbound, team-4/unbound and 2 more"},
		},
		"NeverSelected": {
			reason: "We should find claims in a namespace whose claims are never bound.",
			change: func(w *world) { w.more = append(w.more, asking(t, "kube-system", "lost")) },
			want:   []string{"claims: claimkind/databases.example.org: 1 claim has no class, in namespaces that are excluded: kube-system/lost"},
		},
		"ClassGone": {
			reason: "We should name the claim, and the class that it has.",
			change: func(w *world) { w.gold.SetName("silver") },
			want:   []string{`claims: claimkind/databases.example.org: 1 claim has a class that is gone: team/mine ("golds.example.org/gold")`},
		},
		"ClassGoneOfAClaimBeingDeleted": {
			reason: "We should not ask for anything about a claim that goes.",
			change: func(w *world) {
				w.gold.SetName("silver")
				w.claim.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
				w.claim.SetFinalizers([]string{"example.org/wait"})
			},
		},
		"StaticallyProvisioned": {
			reason: "We should take the name of a class that never was for what Kubernetes takes it for.",
			change: func(w *world) {
				w.classKind.Spec.ClaimKinds = []string{databases, pvcs}
				w.pvcKind.Spec.SkipIfSet = []v1alpha1.Place{{Path: ".spec.volumeName"}}
				w.writeEntries(w.secret.Data["ca.crt"])
				setField(t, w.pvc, "manual", "spec", "storageClassName")
				setField(t, w.pvc, "mine", "spec", "volumeName")
			},
		},
		"ClassOfTheSecondKind": {
			reason: "We should find the class of a kind that the server offers, behind an older kind that it leaves out.",
			change: func(w *world) { w.older(metav1.ConditionFalse, v1alpha1.ReasonNotPermitted) },
			want:   []string{"kinds: classkind/irons.example.org: Ready is False (NotPermitted)"},
		},
		"ClassOfAKindThatIsLeftOut": {
			reason: "We should find a class that is there, and is offered to no claim any more.",
			change: func(w *world) { w.older(metav1.ConditionTrue, v1alpha1.ReasonServed) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			report, err := w.report(t)
			require.NoError(t, err)
			assertFindings(t, report, tc.reason, tc.want)
		})
	}
}
