package status

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/controller/controllertest"
)

// TestStatus changes one thing in an installation that works.
func TestStatus(t *testing.T) {
	label := func(o client.Object, key, value string) { o.SetLabels(map[string]string{key: value}) }
	ca := certtest.NewCA(t)
	expired := (&certtest.Pair{}).Sign(t, &x509.Certificate{
		IsCA:                  true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-2 * time.Hour),
		NotAfter:              time.Now().Add(-time.Hour),
	}).PEM()
	// delayed has a claim with a class that is not there, and one without a class where none is bound.
	const absent = `1 claim has a class that is not there: team/default ("golds.example.org/default"); ` +
		"create the class, or delete the claims and create them again, to get another"
	delayed := func(bindWhen v1beta1.Expression) func(*fixture) {
		return func(w *fixture) {
			w.claimKind.Spec.Claims.When = bindWhen
			w.writeEntries(w.secret.Data["ca.crt"])
			filled := object("example.org/v1", "Database", "team", "default")
			setField(t, filled, "default", "spec", "classRef")
			w.more = append(w.more, filled, asking(t, "kube-system", "waits"))
		}
	}
	for name, tc := range map[string]struct {
		reason string
		// claimKind and classKind are conditions of databases and of golds, as conditions reads them, instead of those that they have.
		claimKind, classKind []string
		change               func(*fixture)
		want                 []string // each finding, as SECTION: WHERE: a part of WHAT
		note                 string
	}{
		"Nothing": {reason: "We should find nothing in an installation that works."},
		"PathWithTypo": {
			reason:    "We should name the path, and not that the kind is not ready for it.",
			claimKind: []string{"Ready=False/ReferencePruned: so it is", "PathsValid=False/ReferencePruned: reference.path: the schema has no field .spec.clasRef"},
			want:      []string{"kinds: claimkind/databases.example.org: PathsValid is False (ReferencePruned): reference.path: the schema has no field .spec.clasRef"},
		},
		"NeededToStart": {
			reason:    "We should say that a cluster may not come up, though nothing is broken.",
			claimKind: []string{"Ready=True/Served", "LetsClustersStart=False/NeededToStart: it may not come up"},
			note:      "claimkind/databases.example.org: LetsClustersStart is False (NeededToStart): it may not come up",
		},
		"ExpressionInvalid": {
			reason: "We should name the expression, and not what follows from it.",
			claimKind: []string{
				"Ready=False/InvalidExpression: so it is", "LateBinding=False/InvalidExpression: so it is",
				"ExpressionsValid=False/InvalidExpression: spec.claims.when: line 1, column 7: no",
			},
			classKind: []string{"Ready=True/Served", "ExpressionsValid=False/ExpressionFailed: Gold/a"},
			want: []string{
				"kinds: claimkind/databases.example.org: ExpressionsValid is False (InvalidExpression): spec.claims.when: line 1, column 7: no",
				"kinds: classkind/golds.example.org: ExpressionsValid is False (ExpressionFailed): Gold/a",
			},
		},
		"RelatedUnknown": {
			reason:    "We should say why related objects are not known, and not what follows from it.",
			claimKind: []string{"Ready=False/RelatedMissing: so it is", "RelatedKnown=False/NotSynced: no answer"},
			want:      []string{"kinds: claimkind/databases.example.org: RelatedKnown is False (NotSynced): no answer"},
		},
		"NotReady": {
			reason:    "We should say why a kind is not ready, what else is wrong with it, and nothing that follows.",
			classKind: []string{"Ready=False/NotSynced: no", "Guarded=False/NotConfigured", "ClaimKindsRegistered=False/NotRegistered: others"},
			change:    func(w *fixture) { w.classes.Webhooks = nil },
			want: []string{
				"kinds: classkind/golds.example.org: Ready is False (NotSynced): no",
				"kinds: classkind/golds.example.org: ClaimKindsRegistered is False (NotRegistered): others",
			},
		},
		"NotReadyForAnotherReason": {
			reason:    "We should not take for a consequence what has a cause of its own.",
			claimKind: []string{"Ready=False/TooLarge: no room", "ClassKindsRead=False/NotPermitted: no right"},
			want: []string{
				"kinds: claimkind/databases.example.org: Ready is False (TooLarge): no room",
				"kinds: claimkind/databases.example.org: ClassKindsRead is False (NotPermitted): no right",
			},
		},
		"Conditions": {
			reason: "We should find each condition that is not met, once.",
			claimKind: []string{
				"Ready=True/Served", "SingleDefault=False/Is", "PathsValid=False/Is", "SelectorsRead=False/Is", "LateBinding=False/Is",
				"ClaimsCounted=False/Is",
			},
			classKind: []string{
				"Ready=True/Served", "Guarded=False/Is", "WeightsValid=False/Is", "LabelsIndexed=False/Is", "MarksValid=False/Is",
				"ClaimKindsRegistered=False/Is",
			},
			change: func(w *fixture) { w.classes.Webhooks = nil },
			want: []string{
				"kinds: claimkind/databases.example.org: SingleDefault is False", "kinds: claimkind/databases.example.org: PathsValid is False",
				"kinds: claimkind/databases.example.org: SelectorsRead is False", "kinds: claimkind/databases.example.org: LateBinding is False",
				"kinds: claimkind/databases.example.org: ClaimsCounted is False", "kinds: classkind/golds.example.org: Guarded is False",
				"kinds: classkind/golds.example.org: WeightsValid is False", "kinds: classkind/golds.example.org: LabelsIndexed is False",
				"kinds: classkind/golds.example.org: MarksValid is False", "kinds: classkind/golds.example.org: ClaimKindsRegistered is False",
			},
		},
		"DefaultCordoned": {
			reason:    "We should find a default class that no claim gets, which is one default all the same.",
			claimKind: []string{"Ready=True/Served", "SingleDefault=True/DefaultCordoned: the default class is cordoned"},
			want:      []string{"kinds: claimkind/databases.example.org: SingleDefault is True (DefaultCordoned): the default class is cordoned"},
		},
		"DefaultOfWeightZero": {
			reason: "We should find a default that no claim gets.",
			change: func(w *fixture) { w.gold.SetAnnotations(map[string]string{"default": "true", "weight": "0"}) },
			want:   []string{"kinds: claimkind/databases.example.org: with WeightedRandom, no claim gets a default class of weight 0: Gold/gold"},
		},
		"NeverLookedAt": {
			reason: "We should not take silence for a good sign.",
			change: func(w *fixture) { w.claimKind.Status.Conditions = nil },
			want:   []string{"kinds: claimkind/databases.example.org: no leader has looked at it"},
		},
		"CRDGone": {
			reason:    "We should say that a resource is not served, once.",
			claimKind: []string{"Ready=False/NotInstalled: no such resource"},
			change:    func(w *fixture) { delete(w.served, databases) },
			note:      "claimkind/databases.example.org: Ready is False (NotInstalled): no such resource",
		},
		"ClassCRDGone": {
			reason: "We should not take for broken what comes before its CRD.",
			change: func(w *fixture) {
				w.classKind.Status.Conditions = conditions([]string{"Ready=False/NotInstalled: no such resource", "Guarded=False/NotInstalled: it is not"})
			},
			note: "classkind/golds.example.org: Ready is False (NotInstalled): no such resource",
		},
		"NoDefault": {
			reason:    "We should not take for broken what may well be meant.",
			claimKind: []string{"Ready=True/Served", "SingleDefault=True/NoDefault: a claim without a selector finds no class"},
			note:      "no class is marked default, so claims without a selector find no class: claim kinds databases.example.org",
		},
		"NeedsWebhook": {
			reason:    "We should find nothing wrong where we bind the claims, and not the API server.",
			claimKind: []string{"Ready=True/Served", "DefaultedByPolicy=False/NeedsWebhook: why"},
			note:      "claimkind/databases.example.org: DefaultedByPolicy is False (NeedsWebhook): why",
		},
		"SchemaUnknown": {
			reason:    "We should report what is unknown.",
			claimKind: []string{"Ready=True/Served", "PathsValid=Unknown/SchemaUnknown: it allows anything"},
			note:      "claimkind/databases.example.org: PathsValid is Unknown (SchemaUnknown): it allows anything",
		},
		"RelatedNotInstalled": {
			reason:    "We should report related objects that cannot be there.",
			claimKind: []string{"Ready=True/Served", "RelatedKnown=True/NotInstalled: no plans"},
			note:      "claimkind/databases.example.org: RelatedKnown is True (NotInstalled): no plans",
		},
		"Ambiguous": {
			reason:    "We should report a class kind that only some claim kinds are offered.",
			classKind: []string{"Ready=True/AmbiguousReference: not to others"},
			note:      "classkind/golds.example.org: Ready is True (AmbiguousReference): not to others",
		},
		"ExcludedAndAsksForNothing": {
			reason: "We should not take a claim for lost that nobody asked to bind.",
			change: func(w *fixture) {
				w.more = append(w.more, object("example.org/v1", "Database", "kube-system", "plain"))
			},
			note: "claimkind/databases.example.org: 1 claim has no class and no selector, in namespaces that are excluded: kube-system/plain",
		},
		"Drain": {
			reason: "We should not take a drain for broken that the PodDisruptionBudget allows.",
			change: func(w *fixture) {
				w.deployment.Status.ReadyReplicas = 1
				waits(w.pod("b"), "ContainerCreating")
			},
			note: "only 1 of 2 replicas are ready, as in a drain: if it stays so, kubectl describe pods --namespace classbind-system --selector " +
				"app.kubernetes.io/name=classbind, and kubectl logs with the same",
		},
		"NotDelayed": {
			reason: "We should find claims that nobody binds, beside one whose class is gone.", change: delayed(""),
			want: []string{"1 claim has no class, in namespaces that are excluded: kube-system/waits"},
			note: "claimkind/databases.example.org: " + absent,
		},
		"DelayedByTheClaim": {
			reason: "We should not take for lost what may not be bound yet.",
			change: delayed("has(claim.spec.ready)"),
			note:   "claimkind/databases.example.org: " + absent,
		},
		"DelayedByTheNamespace": {
			reason: "We should not take for lost what may not be bound yet.",
			change: delayed("has(namespaceObject.metadata.labels)"),
			note:   "claimkind/databases.example.org: " + absent,
		},
		"Rebound": {reason: "We should not take a class for gone that claims.when ignores.", change: delayed("claim.spec.classRef == 'default'")},
		"CAExpired": {
			reason: "We should find an expired CA where it is kept, and not each entry that trusts it.",
			change: func(w *fixture) {
				w.secret.Data["ca.crt"], w.secret.Data["tls.crt"] = expired, expired
				w.writeEntries(expired)
			},
			want: []string{"secrets/classbind-system/classbind-ca: its ca.crt expired at "},
		},
		"OfAnotherIssuer": {
			reason: "We should not look at certificates that nobody uses any more.",
			change: func(w *fixture) {
				left := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: v1beta1.TLSSecret}, Data: map[string][]byte{"ca.crt": expired}}
				w.more = append(w.more, left)
			},
		},
		"CertManagersExpired": {
			reason: "We should find the expired certificate that replicas serve.",
			change: func(w *fixture) {
				w.certManager()
				w.secret.Data["ca.crt"] = ca.PEM()
				w.secret.Data["tls.crt"] = ca.Sign(t, &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}).PEM()
				w.writeEntries(ca.PEM())
			},
			want: []string{"certificates: secrets/classbind-system/classbind-tls: its tls.crt expired at "},
		},
		"NoSecret": {
			reason: "We should say that there is no certificate at all.",
			change: func(w *fixture) { w.secret.Name = "others" },
			want:   []string{"certificates: namespaces/classbind-system: there is no Secret classbind-ca"},
		},
		"SecretMalformed": {
			reason: "We should say that a Secret holds no certificate.",
			change: func(w *fixture) { w.secret.Data = nil; w.writeEntries(ca.PEM()) },
			want:   []string{"its ca.crt cannot be read"},
		},
		"NoReplica": {
			reason: "We should say that no replica is ready, and not that none leads, either.",
			change: func(w *fixture) {
				w.deployment.Status.ReadyReplicas = 0
				w.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Minute)}
			},
			want: []string{"replicas: deployments/classbind-system/classbind: no replica is ready, of 2"},
		},
		"NoLeader": {
			reason: "We should say that none leads of those that are ready.",
			change: func(w *fixture) { w.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Minute)} },
			want: []string{
				"replicas: leases/classbind-system/classbind-leader: no replica leads, so the entries, the status and the CA are not kept up to date; " +
					"the last that led was replica-1",
			},
		},
		"OneReplicaOfTwo": {
			reason: "We should say that a replica is missing, and why.",
			change: func(w *fixture) {
				w.deployment.Status.ReadyReplicas = 1
				waits(w.pod("b"), "ImagePullBackOff")
				w.pod("a")
			},
			want: []string{"replicas: deployments/classbind-system/classbind: only 1 of 2 replicas are ready: pod b: ImagePullBackOff"},
		},
		"TwoReplicasOfFour": {
			reason: "We should not take for a drain what it may not do.",
			change: func(w *fixture) { w.deployment.Spec.Replicas = new(int32(4)) },
			want:   []string{"replicas: deployments/classbind-system/classbind: only 2 of 4 replicas are ready"},
		},
		"RolloutStuck": {
			reason: "We should say that a rollout does not go on while the pods of before are ready.",
			change: func(w *fixture) {
				w.deployment.Status.Replicas, w.deployment.Status.UpdatedReplicas = 3, 1
				w.deployment.Status.Conditions = []appsv1.DeploymentCondition{
					{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"},
				}
				waits(w.pod("c"), "ErrImagePull")
			},
			want: []string{"replicas: deployments/classbind-system/classbind: its rollout does not go on: 1 of 2 replicas are updated: pod c: ErrImagePull"},
		},
		"OutsideTheCluster": {
			reason: "We should find nothing wrong with a Deployment that nobody runs, beside a replica that leads.",
			change: func(w *fixture) { w.deployment.Status = appsv1.DeploymentStatus{} },
		},
		"ScaledToNone": {
			reason: "We should say that it is scaled to 0.",
			change: func(w *fixture) { w.deployment.Spec.Replicas = new(int32(0)) },
			want:   []string{"replicas: deployments/classbind-system/classbind: it is scaled to 0"},
		},
		"EntryGone": {
			reason: "We should miss an entry.",
			change: func(w *fixture) { w.claims.Webhooks, w.classes.Webhooks = w.claims.Webhooks[1:], nil },
			want: []string{
				"webhook entries: mutatingwebhookconfigurations/zz-classbind: claims of databases.example.org are not bound: it has no entry",
				"webhook entries: validatingwebhookconfigurations/classbind: a second default class of golds.example.org is not refused: it has no entry",
			},
		},
		"ConfigurationGone": {
			reason: "We should say that a webhook configuration is not there.",
			change: func(w *fixture) { w.classes.Name = "others" },
			want:   []string{"webhook entries: validatingwebhookconfigurations/classbind: there is no such configuration"},
		},
		"NamespaceExcluded": {
			reason: "We should find claims that nobody binds, and none that has its class.",
			change: func(w *fixture) {
				unbound := asking(t, "team", "unbound")
				excluded := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
				w.claimKind.Spec.Claims.NamespaceSelector.MatchLabels = map[string]v1beta1.LabelValue{"bind": "yes"}
				selected := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
				label(selected, "bind", "yes")
				w.more = append(w.more, unbound, excluded, selected, asking(t, "other", "waits"))
			},
			want: []string{"claims: claimkind/databases.example.org: 1 claim has no class, in namespaces that are excluded: team/unbound"},
		},
		"ManyExcluded": {
			reason: "We should name a few of many claims.",
			change: func(w *fixture) {
				w.claimKind.Spec.Claims.NamespaceSelector.MatchLabels = map[string]v1beta1.LabelValue{"bind": "yes"}
				for n := range 7 {
					namespace := fmt.Sprint("team-", n)
					w.more = append(w.more, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, asking(t, namespace, "unbound"))
				}
			},
			want: []string{
				"7 claims have no class, in namespaces that are excluded: team-0/unbound, team-1/unbound, team-2/unbound, team-3/unbound, team-4/unbound and 2 more",
			},
		},
		"Unbound": {
			reason: "We should count the claims that are stored without a class, and name the command that binds them once.",
			change: func(w *fixture) {
				w.claimKind.Spec.WhenUnmatched = v1beta1.Admit
				w.more = append(w.more, asking(t, "team", "first"), asking(t, "team", "second"))
				w.pvc.Object["spec"] = asking(t, "team", "first").Object["spec"]
			},
			note: "claimkind/databases.example.org: 2 claims have no class: team/first, team/second\n\nNote: claimkind/persistentvolumeclaims: 1 " +
				"claim has no class: team/disk\n\nNote: " +
				"classbind bind databases.example.org --all-namespaces --dry-run shows which class claims without one would get, and without --dry-run " +
				"they get it; so it is for each claim kind above",
		},
		"Waiting": {
			reason: "We should count the claims that wait, and say that classbind binds them.",
			change: func(w *fixture) { w.more = append(w.more, asking(t, "team", "first")) },
			note:   "claimkind/databases.example.org: 1 claim has no class: team/first; classbind binds each once a class matches",
		},
		"NeverSelected": {
			reason: "We should find claims in a namespace whose claims are never bound.",
			change: func(w *fixture) { w.more = append(w.more, asking(t, "kube-system", "lost")) },
			want:   []string{"claims: claimkind/databases.example.org: 1 claim has no class, in namespaces that are excluded: kube-system/lost"},
		},
		"ClassAbsent": {
			reason: "We should name the claim, and the class that it has, and call no kind broken for it.",
			change: func(w *fixture) { w.gold.SetName("silver") },
			note: `claimkind/databases.example.org: 1 claim has a class that is not there: team/mine ("golds.example.org/gold"); ` +
				"create the class, or delete the claims and create them again, to get another",
		},
		"ClassAbsentOfAClaimBeingDeleted": {
			reason: "We should not ask for anything about a claim that goes.",
			change: func(w *fixture) {
				w.gold.SetName("silver")
				w.claim.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
				w.claim.SetFinalizers([]string{"example.org/wait"})
			},
		},
		"StaticallyProvisioned": {
			reason: "We should take the name of a class that never was for what Kubernetes takes it for.",
			change: func(w *fixture) {
				w.classKind.Spec.ClaimKinds = controllertest.Links(databases, pvcs)
				w.pvcKind.Spec.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.volumeName"}}
				w.writeEntries(w.secret.Data["ca.crt"])
				setField(t, w.pvc, "manual", "spec", "storageClassName")
				setField(t, w.pvc, "mine", "spec", "volumeName")
			},
		},
		"ClassOfTheSecondKind": {
			reason: "We should find the class of a kind that the server offers, behind a kind that comes first by name and that it leaves out.",
			change: func(w *fixture) { w.rival(metav1.ConditionFalse, v1beta1.ReasonNotPermitted) },
			want:   []string{"kinds: classkind/a-irons.example.org: Ready is False (NotPermitted)"},
		},
		"ClassOfAKindThatIsLeftOut": {
			reason: "We should find a class that is there, and is offered to no claim any more.",
			change: func(w *fixture) { w.rival(metav1.ConditionTrue, v1beta1.ReasonServed) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			if tc.claimKind != nil {
				w.claimKind.Status.Conditions = conditions(tc.claimKind)
			}
			if tc.classKind != nil {
				w.classKind.Status.Conditions = conditions(tc.classKind)
			}
			if tc.change != nil {
				tc.change(w)
			}
			report, err := w.report(t)
			require.NoError(t, err)
			table := report.table()
			var got []string
			for _, s := range report.Sections {
				assert.NotEmpty(t, s.Summary, "We should say something about %s.", s.Name)
				assert.Empty(t, s.Unread, "We should read everything.")
				for _, f := range s.Findings {
					got = append(got, s.Name+": "+f.Where+": "+f.What)
				}
			}
			require.Len(t, got, len(tc.want), "%s\n%s", tc.reason, table)
			for n, text := range tc.want {
				assert.Contains(t, got[n], text, tc.reason)
			}
			if name == "DefaultCordoned" {
				assert.Equal(t, "3 of 3 ready, of which 1 with something wrong", report.Sections[3].Summary, "We should not say that all is well.")
			}
			assert.Equal(t, min(len(tc.want), 1), exit.Status(report.exit()), "We should show that to scripts by the exit status.")
			if tc.note != "" {
				assert.Contains(t, table, "Note: "+tc.note+"\n", tc.reason)
			}
		})
	}
}

func TestImageOfAll(t *testing.T) {
	w := newFixture(t)
	for updated, want := range map[int32]string{2: "2 of 2 ready, of classbind:v1, the leader is replica-1", 1: "2 of 2 ready, the leader is replica-1"} {
		w.deployment.Status.UpdatedReplicas = updated
		report, err := w.report(t)
		require.NoError(t, err)
		assert.Equal(t, want, report.Sections[0].Summary, "We should name an image that all replicas run, of %d.", updated)
	}
}

// TestElsewhere has the wrong namespace in the flag.
func TestElsewhere(t *testing.T) {
	const want = "classbind is in namespace classbind-system, where the API server asks it, and not in others: --classbind-namespace classbind-system"
	for name, tc := range map[string]struct {
		reason string
		change func(*fixture)
		want   string
	}{
		"Nothing":    {"We should say where classbind is.", func(*fixture) {}, want},
		"Unread":     {"We should not say so of what we may not read.", func(w *fixture) { w.unread = []string{"Lease"} }, ""},
		"Lease":      {"We should look at a namespace with a Lease.", func(w *fixture) { w.lease.Namespace = "others" }, ""},
		"Deployment": {"We should look at a namespace with a Deployment.", func(w *fixture) { w.deployment.Namespace = "others" }, ""},
		"URL": {"We should not guess where a URL leads.", func(w *fixture) {
			at := admissionregistrationv1.WebhookClientConfig{URL: new("https://localhost:1/bind")}
			w.claims.Webhooks[0].ClientConfig, w.claims.Webhooks[1].ClientConfig = at, at
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			tc.change(w)
			w.namespace = "others"
			_, err := w.report(t)
			if tc.want == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.EqualError(t, err, tc.want, tc.reason)
		})
	}
}

func TestClockAhead(t *testing.T) {
	for renewed, want := range map[bool]string{true: "the leader is replica-1", false: "no leader"} {
		w := newFixture(t)
		w.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-16 * time.Second)}
		w.renewed = renewed
		report, err := w.report(t)
		require.NoError(t, err)
		assert.Contains(t, report.Sections[0].Summary, want, "We should not trust the clock of whoever asks.")
		assert.Contains(t, w.progress.String(), "looking again", "We should say why it takes so long.")
	}
	w := newFixture(t)
	_, err := w.report(t)
	require.NoError(t, err)
	assert.Empty(t, w.progress.String(), "We should not look again at a Lease that is held.")
}

func TestWithoutLeader(t *testing.T) {
	w := newFixture(t)
	w.lease.Spec.HolderIdentity = nil
	for ready, want := range map[int32]string{
		0: "3 of 3 ready, as the last leader wrote\n", // It is no longer kept.
		2: "3 of 3 ready\n",                           // --leader-elect=false
	} {
		w.deployment.Status.ReadyReplicas = ready
		report, err := w.report(t)
		require.NoError(t, err)
		table := report.table()
		assert.Contains(t, table, want, "We should vouch for no more than a replica does, of %d.", ready)
	}
}

// TestUnread has a user who may not read something, or an API server that does not answer.
func TestUnread(t *testing.T) {
	for kind, unknown := range map[string]map[string]string{ // parts of the summaries
		"Deployment": {"replicas": "Deployment not read"}, "Pod": {"replicas": ""}, "Lease": {"replicas": "Lease not read"},
		"Secret":                         {"certificates": "not read"},
		"MutatingWebhookConfiguration":   {"webhook entries": "not read for claims, 2 for classes"},
		"ValidatingWebhookConfiguration": {"webhook entries": "2 for claims, not read for classes"},
		"Classes":                        {"kinds": "3 of 3 ready", "claims": "2 read"},
		"Database":                       {"claims": "1 read, without those of databases.example.org"},
		"Namespace":                      {"claims": "2 read"},
	} {
		for status, set := range map[int]func(*fixture){
			0:           func(w *fixture) { w.unread = []string{kind} },
			exit.Failed: func(w *fixture) { w.down = []string{kind} },
		} {
			w := newFixture(t)
			if kind == "Namespace" {
				w.claimKind.Spec.Claims.NamespaceSelector.MatchLabels = map[string]v1beta1.LabelValue{"bind": "yes"}
				w.writeEntries(w.secret.Data["ca.crt"])
			}
			set(w)
			report, err := w.report(t)
			require.NoError(t, err)
			assert.Equal(t, status, exit.Status(report.exit()), "We should distinguish what we may not read (0) from a cluster that does not answer (2), for %s.", kind)
			for _, s := range report.Sections {
				assert.Empty(t, s.Findings, "We should not take for broken what we could not read of %s.", kind)
				summary, is := unknown[s.Name]
				assert.Equal(t, is, s.State == Unknown, "We should say what of %s is unknown: %v", s.Name, s.Unread)
				assert.Contains(t, s.Summary, summary, "We should give no number of what we did not read.")
			}
			table := report.table()
			assert.Equal(
				t, 1, strings.Count(table, "\nNot read (have somebody run this who may read it, or run it again):\n  "),
				"We should put together what was not read.",
			)
		}
	}
	w := newFixture(t)
	w.unread = []string{"ClaimKind"}
	_, err := w.report(t)
	require.ErrorContains(t, err, "cannot list ClaimKinds", "We should have nothing to say without the registrations.")
}

func TestReportForPrograms(t *testing.T) {
	w := newFixture(t)
	w.more = append(w.more, asking(t, "kube-system", "lost"))
	report, err := w.report(t)
	require.NoError(t, err)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	assert.Contains(t, string(text), `{"kind":"Report","apiVersion":"status.classbind.io/v1beta1","sections":[{"name":"replicas","state":"OK",`)
	assert.Contains(t, string(text), `"findings":[{"where":"claimkind/databases.example.org","what":"1 claim has`)
}
