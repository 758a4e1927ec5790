package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

func outcomeKinds(group string, defaulting v1beta1.Defaulting) string {
	databases, caches := "databases."+group, "caches."+group
	return claimKind(databases, fmt.Sprintf("{admission: {defaulting: %s}}", defaulting)) +
		claimKind(caches, fmt.Sprintf("{choice: {strategy: Random}, whenUnmatched: Deny, admission: {defaulting: %s, failurePolicy: Ignore}}", defaulting)) +
		classKind("bigclasses."+group, fmt.Sprintf("{claimKinds: [{name: %s}, {name: %s}]}", databases, caches)) +
		classKind("smallclasses."+group, fmt.Sprintf("{claimKinds: [{name: %s}]}", databases))
}

func outcomeClasses(group string) string {
	return class(group, "BigClass", "gold", "labels: {tier: gold, region: eu}, ") +
		class(group, "SmallClass", "standard", "labels: {tier: standard, region: us}, "+isDefault) +
		class(group, "SmallClass", "cordoned", `labels: {tier: retired}, annotations: {classbind.io/cordoned: "true"}, `) +
		class(group, "BigClass", "weightless", `labels: {tier: free}, annotations: {resourceclass.crossplane.io/weight: "0"}, `) +
		class(group, "SmallClass", "terminating", "labels: {tier: leaving}, finalizers: [outcome.test/stay], ")
}

// TestOutcome has every row of the table in docs/claims.md, as the API server shows it, whatever gives the default class.
func TestOutcome(t *testing.T) {
	t.Parallel()
	for group, defaulting := range map[string]v1beta1.Defaulting{
		"outcome.test": v1beta1.DefaultingWebhook, "policyoutcome.test": v1beta1.DefaultingPolicy,
	} {
		t.Run(string(defaulting), func(t *testing.T) {
			t.Parallel()
			if defaulting == v1beta1.DefaultingPolicy {
				needsPolicies(t)
			}
			testOutcome(t, group, defaulting)
		})
	}
}

func testOutcome(t *testing.T, group string, defaulting v1beta1.Defaulting) {
	w := theSharedWorld(t)
	databases := "databases." + group
	w.resources(t, "Database databases."+group+" Namespaced", "Cache caches."+group+" Namespaced",
		"BigClass bigclasses."+group+" Cluster", "SmallClass smallclasses."+group+" Cluster", "OldClass oldclasses."+group+" Cluster")
	w.apply(t, outcomeClasses(group))
	w.kubectl(t, "delete", "smallclasses."+group, "terminating", "--wait=false") // Before a replica knows it: its count would not change.
	w.apply(t, vendor(group)+outcomeKinds(group, defaulting))
	w.awaitClaims(t, databases)
	w.awaitClaims(t, "caches."+group)
	w.awaitClasses(t, "bigclasses."+group, 2)
	w.awaitClasses(t, "smallclasses."+group, 3)
	byPolicy := defaulting == v1beta1.DefaultingPolicy
	if byPolicy {
		w.awaitPolicy(t, databases, ofKind(group, "Database", "probe", "{}"))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, "caches."+group, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionFalse, "no class is marked default")
	}

	const forbidden, invalid = http.StatusForbidden, http.StatusUnprocessableEntity
	before, itself := w.boundByPolicy(t, databases), 0 // Not for each row, as these metrics are megabytes.
	for name, tc := range map[string]struct {
		reason                  string
		kind                    string // Database unless set
		spec, annotation, class string
		code                    int
		message                 []string // parts of the error or of the warning
		cause                   string   // field
		// unopinionated claims are those that the API server itself binds, where it may.
		unopinionated bool
	}{
		"ClassReference":      {reason: "We should leave a claim with a class reference alone.", spec: "{classRef: {kind: Any, name: mine}}", class: "Any/mine"},
		"EmptyClassReference": {reason: "We should take an empty reference for none.", spec: "{classRef: {}}", class: "SmallClass/standard"},
		"NullClassReference": {
			reason: "We should bind a claim whose reference is null.",
			spec:   "{classRef: null, classSelector: {matchLabels: {tier: gold}}}",
			class:  "BigClass/gold",
		},
		"ResourceReference": {reason: "We should leave a static claim alone.", spec: "{resourceRef: {name: db-1}}", class: ""},
		"Labels": {
			reason: "We should bind to a class that has the labels.",
			spec:   "{classSelector: {matchLabels: {tier: gold}}}",
			class:  "BigClass/gold",
		},
		"Expressions": {
			reason: "We should bind to a class that meets the expressions, and not pass over them.",
			spec:   "{classSelector: {matchExpressions: [{key: region, operator: In, values: [eu, us]}, {key: tier, operator: NotIn, values: [standard]}]}}",
			class:  "BigClass/gold",
		},
		"LabelsAndExpressions": {
			reason: "We should bind to a class that has the labels and meets the expressions.",
			spec:   "{classSelector: {matchLabels: {tier: standard}, matchExpressions: [{key: region, operator: Exists}]}}",
			class:  "SmallClass/standard",
		},
		"EmptySelector": {reason: "We should take any class for an empty selector.", spec: "{classSelector: {}}", class: "*"},
		"NoSelector": {
			reason:        "We should take the default class for a claim without a selector.",
			spec:          "{size: 1}",
			class:         "SmallClass/standard",
			unopinionated: true,
		},
		"NoSpec": {
			reason:        "We should take the default class for a claim without a spec, and add one.",
			class:         "SmallClass/standard",
			unopinionated: true,
		},
		"NullSpec": {
			reason:        "We should take the default class for a claim whose spec is null.",
			spec:          "null",
			class:         "SmallClass/standard",
			unopinionated: true,
		},
		"SelectorAnnotation": {
			reason:     "We should take the selector from the annotation.",
			annotation: "tier in (gold,silver),region=eu",
			spec:       "{}",
			class:      "BigClass/gold",
		},
		"UnmatchedAdmitted": {
			reason:  "We should admit an unmatched claim with a warning of what was looked for.",
			spec:    "{classSelector: {matchLabels: {tier: platinum}}}",
			message: []string{`"tier=platinum"`, fmt.Sprintf("among 5 classes of bigclasses.%[1]s, smallclasses.%[1]s", group)},
		},
		"UnmatchedDenied": {
			reason:  "We should refuse an unmatched claim of a kind that says so.",
			kind:    "Cache",
			spec:    "{classSelector: {matchLabels: {tier: platinum}}}",
			code:    forbidden,
			message: []string{`"tier=platinum"`, "among 2 classes of bigclasses." + group},
		},
		"NoDefaultDenied": {
			reason:  "We should refuse a claim without a selector where there is no default, of a kind that says so.",
			kind:    "Cache",
			spec:    "{size: 1}",
			code:    forbidden,
			message: []string{"no class is marked default"},
		},
		"Cordoned": {
			reason:  "We should not offer a cordoned class.",
			spec:    "{classSelector: {matchLabels: {tier: retired}}}",
			message: []string{"1 cordoned"},
		},
		"WeightZero": {
			reason:  "We should not offer a class of weight 0 under a weighted strategy.",
			spec:    "{classSelector: {matchLabels: {tier: free}}}",
			message: []string{"1 of weight 0"},
		},
		"WeightZeroRandom": {
			reason: "We should offer a class of weight 0 under a strategy that does not weigh.",
			kind:   "Cache",
			spec:   "{classSelector: {matchLabels: {tier: free}}}",
			class:  "BigClass/weightless",
		},
		"Terminating": {
			reason:  "We should not offer a class that is being deleted.",
			spec:    "{classSelector: {matchLabels: {tier: leaving}}}",
			message: []string{"1 being deleted"},
		},
		"UnknownOperator": {
			reason: "We should refuse an operator that there is not.",
			spec:   "{classSelector: {matchExpressions: [{key: tier, operator: Foo}]}}",
			code:   invalid,
			cause:  "spec.classSelector.matchExpressions[0].operator",
		},
		"SelectorIsText": {
			reason: "We should refuse a selector that is not an object.",
			spec:   "{classSelector: tier=gold}",
			code:   invalid,
			cause:  "spec.classSelector",
		},
		"SelectorMisspelt": {
			reason:  "We should refuse a field that we do not know, and not take it for an empty selector.",
			spec:    "{classSelector: {matchLabel: {tier: gold}}}",
			code:    invalid,
			message: []string{`"matchLabel"`},
			cause:   "spec.classSelector",
		},
		"SpecIsText": {reason: "We should refuse a spec that is not an object.", spec: "gold, please", code: invalid, cause: "spec"},
		"MalformedAnnotation": {
			reason:     "We should refuse an annotation that is no selector.",
			annotation: "tier in gold",
			spec:       "{}",
			code:       invalid,
			cause:      "metadata.annotations[classbind.io/class-selector]",
		},
		"FieldAndAnnotation": {
			reason:     "We should refuse a selector in both places.",
			annotation: "tier=gold",
			spec:       "{classSelector: {}}",
			code:       invalid,
			cause:      "metadata.annotations[classbind.io/class-selector]",
		},
	} {
		if byPolicy && !tc.unopinionated {
			continue // The API server leaves these to classbind, as TestPolicyForms shows.
		}
		t.Run(name, func(t *testing.T) {
			metadata := strings.ToLower(name)
			if tc.annotation != "" {
				metadata += fmt.Sprintf(", annotations: {classbind.io/class-selector: %q}", tc.annotation)
			}
			claim, warnings, err := w.create(t, strings.TrimSuffix(ofKind(group, cmp.Or(tc.kind, "Database"), metadata, tc.spec), "spec: \n"))
			if byPolicy {
				itself++
			}
			if tc.code != 0 {
				refusedWith(t, err, tc.code, tc.message...)
				if status := apierrors.APIStatus(nil); tc.cause != "" && assert.ErrorAs(t, err, &status) {
					require.Len(t, status.Status().Details.Causes, 1, tc.reason)
					assert.Equal(t, tc.cause, status.Status().Details.Causes[0].Field, tc.reason)
				}
				return
			}
			require.NoError(t, err, tc.reason)
			if tc.class == "*" {
				assert.Contains(t, []string{"BigClass/gold", "SmallClass/standard"}, classOf(claim), tc.reason)
			} else {
				assert.Equal(t, tc.class, classOf(claim), tc.reason)
			}
			for _, part := range tc.message {
				assert.Contains(t, strings.Join(warnings, "\n"), part, tc.reason)
			}
			if tc.message == nil {
				assert.Empty(t, warnings, tc.reason)
			}
		})
	}

	assert.Equal(t, itself, w.boundByPolicy(t, databases)-before, "We should see how many classes the API server gave itself.")
	t.Run("NotACreation", func(t *testing.T) {
		claim := w.created(t, ofKind(group, "Database", "updated", "{resourceRef: {name: db-1}}"))
		unstructured.RemoveNestedField(claim.Object, "spec", "resourceRef")
		require.NoError(t, w.Update(t.Context(), claim))
		assert.Empty(t, classOf(claim), "We should bind at creation, and never after.")
	})

	t.Run("SeveralDefaults", func(t *testing.T) {
		// One that was made before anybody guarded its kind.
		w.apply(t, class(group, "OldClass", "legacy", isDefault))
		w.apply(t, serving("oldclasses."+group, databases))
		eventually(t, func(c *attempt) {
			claim, warnings, err := w.create(t, ofKind(group, "Database", "two-defaults", "{}"), client.DryRunAll)
			require.NoError(c, err)
			require.Contains(c, []string{"OldClass/legacy", "SmallClass/standard"}, classOf(claim), "We should choose among the defaults.")
			require.Contains(c, strings.Join(warnings, "\n"), fmt.Sprintf("and %q was drawn", classOf(claim)), "We should warn, and name the class.")
		})
		eventually(t, func(c *attempt) {
			require.Equal(c, "OldClass/legacy SmallClass/standard 2 False SeveralDefaults", w.kubectl(t, "get", "claimkind", databases, "-o",
				`jsonpath={range .status.defaults[*]}{.kind}/{.name} {end}{.status.defaultCount} {.status.conditions[?(@.type=="SingleDefault")].status} `+
					`{.status.conditions[?(@.type=="SingleDefault")].reason}`))
		}, "We should say so in the status.")
		if byPolicy {
			w.awaitCondition(t, &v1beta1.ClaimKind{}, databases, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionFalse, "2 classes are marked default")
		}
	})
}

// TestReferences has claims of the shapes that other projects have, and counts which of them the API server calls us for.
func TestReferences(t *testing.T) {
	const group = "references.test"
	w, asked := sharedReplica(t)
	w.resources(t, "Job jobs."+group+" Namespaced", "Queue queues."+group+" Namespaced", "Ingress ingresses."+group+" Namespaced",
		"IngressClass ingressclasses."+group+" Cluster", "Secret secrets."+group+" Namespaced", "Store stores."+group+" Namespaced",
		"ClusterStore clusterstores."+group+" Cluster", "Cluster clusters."+group+" Namespaced", "ClusterClass clusterclasses."+group+" Namespaced",
		"Instance instances."+group+" Namespaced")
	manifest := lateVendor(group) + serving("queues."+group, "jobs."+group) + serving("ingressclasses."+group, "ingresses."+group) +
		serving("stores."+group, "secrets."+group) + serving("clusterstores."+group, "secrets."+group) +
		serving("clusterclasses."+group, "clusters."+group, "instances."+group) + class(group, "IngressClass", "usual", isDefault) +
		class(group, "Store", "own", "namespace: default, "+isDefault) + class(group, "ClusterStore", "shared", isDefault) +
		class(group, "ClusterClass", "quick-start", "namespace: default, "+isDefault)
	for name, spec := range map[string]string{
		"jobs": "{reference: {label: kueue.x-k8s.io/queue-name, form: Name}, whenUnmatched: BindLater}",
		"ingresses": "{claims: {skipIfSet: [{annotation: kubernetes.io/ingress.class}]}, reference: {path: .spec.ingressClassName, form: Name, " +
			"whenEmpty: LeaveAlone}}",
		"secrets":   "{reference: {path: .spec.storeRef, form: KindReference}}",
		"clusters":  "{reference: {path: .spec.topology.classRef, form: LocalObjectReference, whenParentAbsent: LeaveAlone}}",
		"instances": "{reference: {path: .spec.clusterId, form: Name}, selector: {annotation: example.org/cluster-selector, whenAbsent: LeaveAlone}}",
	} {
		manifest += claimKind(name+"."+group, spec)
	}
	w.apply(t, manifest)
	for _, kind := range []string{"ingressclasses", "stores", "clusterstores", "clusterclasses"} {
		w.awaitClasses(t, kind+"."+group, 1)
	}
	for _, kind := range []string{"jobs", "ingresses", "secrets"} {
		w.awaitClaims(t, kind+"."+group)
	}
	of := func(kind, name, metadata, spec string) string { return ofKind(group, kind, name+metadata, spec) }
	for _, probe := range []string{ // The API server does not call us for those of awaitClaims.
		of("Cluster", "probe", ", annotations: {classbind.io/class-selector: '='}", "{topology: {}}"),
		of("Instance", "probe", ", annotations: {example.org/cluster-selector: '='}", "{}"),
	} {
		w.awaitRefused(t, probe, "is invalid", "")
	}
	shared := map[string]any{"kind": "ClusterStore", "name": "shared"}
	own := map[string]any{"kind": "Store", "name": "own"}

	for name, tc := range map[string]struct {
		reason, kind, manifest string
		calls                  int
		at                     []string
		want                   any
	}{
		"LabelSet": {
			"We should not be called for a job that names its queue.", "jobs",
			of("Job", "labelled", ", labels: {kueue.x-k8s.io/queue-name: mine}", "{}"), 0,
			[]string{"metadata", "labels", "kueue.x-k8s.io/queue-name"},
			"mine",
		},
		"AnnotationSet": {
			"We should leave alone an Ingress with the old annotation.", "ingresses",
			of("Ingress", "old", ", annotations: {kubernetes.io/ingress.class: nginx}", "{}"), 0,
			[]string{"spec", "ingressClassName"},
			nil,
		},
		"AnnotationUnset": {
			"We should bind an Ingress without it.", "ingresses", of("Ingress", "new", ", annotations: {a: b}", "{}"), 1,
			[]string{"spec", "ingressClassName"},
			"usual",
		},
		"EmptyLeftAlone": {
			"We should not be called for an Ingress that wants no class.",
			"ingresses", of("Ingress", "none", "", `{ingressClassName: ""}`), 0,
			[]string{"spec", "ingressClassName"},
			"",
		},
		"KindGiven": {
			"We should give the default class of the kind that the author set, and keep the rest.",
			"secrets", of("Secret", "given", "", "{storeRef: {kind: ClusterStore}}"), 1,
			[]string{"spec", "storeRef"},
			shared,
		},
		"NameEmpty": {
			"We should take the empty name of a typed client for none.", "secrets", of("Secret", "empty", "", `{storeRef: {name: "", kind: ""}}`),
			1,
			[]string{"spec", "storeRef"},
			own,
		},
		"OtherFields": {
			"We should leave the other fields of the object.", "secrets", of("Secret", "others", "", `{storeRef: {kind: Store, name: "", optional: true}}`), 1,
			[]string{"spec", "storeRef"},
			map[string]any{"kind": "Store", "name": "own", "optional": true},
		},
		"NameSet": {
			"We should not be called for a claim with a name.", "secrets", of("Secret", "named", "", "{storeRef: {name: mine}}"), 0,
			[]string{"spec", "storeRef"},
			map[string]any{"name": "mine"},
		},
		"ParentAbsent": {
			"We should leave alone a Cluster without a topology.", "clusters", of("Cluster", "plain", "", "{}"), 0,
			[]string{"spec"},
			map[string]any{},
		},
		"ParentThere": {
			"We should bind a Cluster with a topology.", "clusters", of("Cluster", "topology", "", "{topology: {version: v1}}"), 1,
			[]string{"spec", "topology", "classRef"},
			map[string]any{"name": "quick-start"},
		},
		"SelectorAbsent": {
			"We should leave alone a claim without a selector.", "instances",
			of("Instance", "plain", ", annotations: {classbind.io/class-selector: a=b}", "{}"), 0,
			[]string{"spec"},
			map[string]any{},
		},
		"SelectorPresent": {
			"We should be called for a claim with a selector.", "instances",
			of("Instance", "selecting", ", annotations: {example.org/cluster-selector: a=b}", "{}"), 1,
			[]string{"spec"},
			map[string]any{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := tc.kind + "." + group
			before := asked(kind)
			stored := w.created(t, tc.manifest)
			assert.Equal(t, tc.calls, asked(kind)-before, tc.reason)
			assert.Equal(t, tc.want, at(stored, tc.at...), tc.reason)
		})
	}

	t.Run("WrongType", func(t *testing.T) {
		w.refuses(
			t, of("Secret", "wrong", "", "{storeRef: {name: 5}}"), "spec.storeRef.name: Invalid value: 5: must be a string",
			"We should show the author which field is wrong.",
		)
	})
	t.Run("OtherKind", func(t *testing.T) {
		_, warned := w.warned(t, of("Secret", "other", "", "{storeRef: {kind: Vault}}"))
		require.Len(t, warned, 1)
		assert.Contains(t, warned[0], "of another group, kind or namespace than the class reference of the claim says")
	})
	t.Run("LabelLater", func(t *testing.T) {
		job, warned := w.warned(t, of("Job", "waits", ", labels: {a: b}", "{}"))
		require.Len(t, warned, 1)
		require.NotContains(t, job.GetLabels(), "kueue.x-k8s.io/queue-name")
		w.apply(t, class(group, "Queue", "default", "namespace: default, "+isDefault))
		eventually(t, func(c *attempt) {
			require.NoError(c, w.Get(t.Context(), client.ObjectKeyFromObject(job), job))
			require.Equal(c, map[string]string{"a": "b", "kueue.x-k8s.io/queue-name": "default"}, job.GetLabels())
		}, "We should write the label of a job that waited.")
		w.awaitClasses(t, "queues."+group, 1)
		job = w.created(t, of("Job", "now", "", "{}"))
		assert.Equal(t, map[string]string{"kueue.x-k8s.io/queue-name": "default"}, job.GetLabels(), "We should write the label of a new job.")
	})
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "jobs."+group, v1beta1.ConditionLateBinding, metav1.ConditionTrue, "")
}

// TestSticky has claims that are bound to the class first, which then no longer matches them, and updates that leave their reference out.
func TestSticky(t *testing.T) {
	w, asked := sharedReplica(t)
	const admit, later = "admit.sticky.test", "later.sticky.test"
	for group, spec := range map[string]string{admit: "{}", later: "{whenUnmatched: BindLater}"} {
		w.register(t, group, spec, class(group, "Class", "first", "labels: {tier: gold}, "))
	}
	// asking is the file of a claim, without a reference.
	asking := func(group, name, more string) string {
		return claimWith(group, name, "{classSelector: {matchLabels: {tier: gold}}"+more+"}")
	}
	bound := map[string][]*unstructured.Unstructured{}
	for _, group := range []string{admit, later} {
		for _, name := range []string{"replaced", "updated", "applied"} {
			bound[group] = append(bound[group], w.binds(t, asking(group, name, ""), "Class/first", ""))
		}
		w.apply(t, class(group, "Class", "first", "labels: {tier: silver}, ")+class(group, "Class", "second", "labels: {tier: gold}, "))
		w.awaitBound(t, asking(group, "probe", ""), "Class/second", "We should see the class match no more.")
	}

	for group, reason := range map[string]string{
		admit: "We should keep a claim bound that is replaced by its file.",
		later: "We should not move a claim to another class that is replaced by its file.",
	} {
		t.Run("Replace/"+group, func(t *testing.T) {
			claim := bound[group][0]
			before := asked("claims." + group)
			_, warning, err := w.Kubectl(t.Context(), strings.NewReader(asking(group, "replaced", ", size: 2")), "replace", "-f", "-")
			require.NoError(t, err)
			require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
			assert.Equal(t, "Class/first", classOf(claim), reason)
			assert.Contains(t, warning, `keeps it (class "first")`, "We should inform the author.")
			assert.Equal(t, 1, asked("claims."+group)-before, "We should be called once for it.")
			assert.Never(t, func() bool {
				return w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) != nil || classOf(claim) != "Class/first"
			}, time.Second, 100*time.Millisecond, "We should not bind it later, either.")
		})
	}

	t.Run("OtherUpdates", func(t *testing.T) {
		claim := bound[admit][1]
		before := asked("claims." + admit)
		claim.SetLabels(map[string]string{"a": "b"})
		require.NoError(t, w.Update(t.Context(), claim))
		require.NoError(t, unstructured.SetNestedField(claim.Object, map[string]any{"kind": "Class", "name": "second"}, "spec", "classRef"))
		require.NoError(t, w.Update(t.Context(), claim))
		assert.Equal(t, "Class/second", classOf(claim), "We should allow another class.")
		claim.SetFinalizers([]string{"sticky.test/wait"})
		require.NoError(t, w.Update(t.Context(), claim))
		require.NoError(t, w.Delete(t.Context(), claim))
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		unstructured.RemoveNestedField(claim.Object, "spec", "classRef")
		claim.SetFinalizers(nil)
		require.NoError(t, w.Update(t.Context(), claim))
		assert.Equal(t, before, asked("claims."+admit), "We should not be called for updates that unbind no claim, nor for a claim that is being deleted.")
	})

	// Its author takes the name from classbind by force, and gives it up. The API server removes the name alone.
	t.Run("Apply", func(t *testing.T) {
		apply := func(more string) (said []string) {
			applied := client.ApplyConfigurationFromUnstructured(documents(t, asking(admit, "applied", more))[0])
			require.NoError(t, w.Apply(context.WithValue(t.Context(), warnings{}, &said), applied, client.ForceOwnership, client.FieldOwner("author")))
			return said
		}
		apply(", classRef: {name: second}")
		assert.Contains(t, fmt.Sprint(apply("")), `keeps it (class "second")`, "We should inform the author.")
		claim := bound[admit][2]
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		assert.Equal(
			t, map[string]any{"apiVersion": admit + "/v1", "kind": "Class", "name": "second"}, at(claim, "spec", "classRef"),
			"We should keep the whole reference.",
		)
	})
}
