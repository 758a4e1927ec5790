package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestConditions has what admins have to mend, and the messages about it.
func TestConditions(t *testing.T) {
	w := sharedWorld(t)
	t.Run("WrongForm", func(t *testing.T) {
		t.Parallel()
		const group, kind, stores, clusterStores = "form.test", "claims.form.test", "stores.form.test", "clusterstores.form.test"
		w.resources(t, "Store "+stores+" Namespaced", "ClusterStore "+clusterStores+" Cluster")
		// A store reference as external-secrets has it: without a group, of two kinds.
		w.apply(
			t,
			fmt.Sprintf(schemaOfClaims, group, "storeRef: {type: object, properties: {kind: {type: string, enum: [Store, ClusterStore]}, name: {type: string}}}"),
		)
		w.apply(t, vendor(group)+class(group, "Store", "near", "namespace: default, labels: {at: here}, ")+class(group, "ClusterStore", "far", "labels: {at: sea}, ")+
			serving(stores, kind)+serving(clusterStores, kind)+claimKind(kind, "{reference: {path: .spec.storeRef}}"))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionPathsValid, metav1.ConditionFalse, "the API server would remove fields of "+
			"the reference to its class: "+
			"reference.form ObjectReference: the schema has no field .spec.storeRef.apiVersion: set spec.reference.form to KindReference")
		w.awaitBound(t, claim(group, "lost"), "", "We should bind no claim whose reference would name another store than the one that was drawn.")

		w.apply(t, claimKind(kind, "{reference: {path: .spec.storeRef, form: KindReference}}"))
		w.awaitClaims(t, kind)
		w.awaitClasses(t, stores, 1)
		w.awaitClasses(t, clusterStores, 1)
		for at, want := range map[string]map[string]any{"here": {"kind": "Store", "name": "near"}, "sea": {"kind": "ClusterStore", "name": "far"}} {
			w.awaitReference(t, selecting(group, "Claim", "default", "at-"+at, map[string]any{"at": at}), []string{"spec", "storeRef"}, want)
		}
	})

	t.Run("Required", func(t *testing.T) {
		t.Parallel()
		const group, kind = "require.test", "claims.require.test"
		w.resources(t, "Class classes.require.test Cluster")
		w.apply(t, strings.Replace(
			fmt.Sprintf(schemaOfClaims, group, wholeReference), "          spec:\n            type: object\n",
			"          spec:\n            type: object\n            required: [classRef]\n", 1,
		))
		w.apply(t, lateVendor(group)+serving("classes.require.test", "claims.require.test")+claimKind(kind, "{whenUnmatched: BindLater}"))
		w.awaitClaims(t, kind)
		eventually(t, func(c *attempt) {
			_, warnings, err := w.create(t, claim(group, "unbound"), client.DryRunAll)
			refusedWith(c, err, http.StatusForbidden, "create or label a class; the schema of its kind requires .spec.classRef")
			require.NotContains(c, err.Error(), "Required value")
			require.Empty(c, warnings)
		}, "We should refuse the claim ourselves, and say what helps.")
		w.apply(t, class(group, "Class", "only", ""))
		w.awaitClasses(t, "classes."+group, 1)
		w.binds(t, claim(group, "bound"), "Class/only", "We should have given the right advice.")
	})

	t.Run("PathsOfCoreKinds", func(t *testing.T) {
		t.Parallel()
		const spec = "{claims: {namespaceSelector: {matchLabels: {none: here}}}, reference: {path: .template.spec.runtimeClassNam%s, form: Name}}"
		w.apply(t, claimKind("podtemplates", fmt.Sprintf(spec, "")))
		w.awaitCondition(
			t, &v1beta1.ClaimKind{}, "podtemplates", v1beta1.ConditionPathsValid, metav1.ConditionFalse,
			"reference.path: the schema has no field .template.spec.runtimeClassNam",
		)
		w.apply(t, claimKind("podtemplates", fmt.Sprintf(spec, "e")))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, "podtemplates", v1beta1.ConditionPathsValid, metav1.ConditionTrue, "")
	})
}

// TestWrongRegistrations applies each to a cluster that has claims of the kind. One that was never served stops no claim, and says why it
// does nothing. One that was served, and is changed to it, stays in force.
func TestWrongRegistrations(t *testing.T) {
	w := sharedWorld(t)
	for name, tc := range map[string]struct {
		spec             string // of the ClaimKind
		withoutClassKind bool
		reason, message  string
		// served is the answer to claims if the registration was right before; empty, it is not tried.
		served string
	}{
		"PathMisspelt": {
			spec:    "{reference: {path: .spec.clasRef}}",
			reason:  v1beta1.ReasonReferencePruned,
			message: "the schema has no field .spec.clasRef",
			served:  "the schema has no field .spec.clasRef",
		},
		"WrongType": {spec: "{reference: {path: .spec.classRef, form: Name}}", reason: v1beta1.ReasonPathsInvalid, message: "must be of type string"},
		"VersionNotServed": {
			spec:    "{claims: {version: v2}}",
			reason:  v1beta1.ReasonVersionNotServed,
			message: "v2",
			served:  "write the paths for a version that is served",
		},
		"NoClassKind": {spec: "{}", withoutClassKind: true, reason: v1beta1.ReasonNoClassKind, message: "create a ClassKind for it"},
	} {
		for _, served := range []bool{false, true} {
			group := fmt.Sprintf("%s.served-%t.wrong.test", strings.ToLower(name), served)
			if served && tc.served == "" {
				continue
			}
			t.Run(fmt.Sprint(name, "/", served), func(t *testing.T) {
				t.Parallel()
				kind, classKinds := "claims."+group, serving("classes."+group, "claims."+group)
				w.resources(t, "Class classes."+group+" Cluster")
				w.apply(t, fmt.Sprintf(schemaOfClaims, group, wholeReference)+class(group, "Class", "only", "")+vendor(group))
				if served {
					w.apply(t, classKinds+claimKind(kind, "{}"))
					w.awaitClaims(t, kind)
				} else if tc.withoutClassKind {
					classKinds = ""
				}
				w.apply(t, classKinds+claimKind(kind, tc.spec))
				w.awaitReason(t, &v1beta1.ClaimKind{}, kind, tc.reason)
				w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionFalse, tc.message)
				if served {
					w.awaitRefused(t, claim(group, "after"), tc.served, "We should go on to bind every claim of a kind that was served, or none.")
					return
				}
				assert.Never(t, func() bool { // An entry would have to be written, and seen.
					_, _, err := w.create(t, claim(group, "after"), client.DryRunAll)
					return err != nil
				}, time.Second, 100*time.Millisecond, "We should stop no claim for a registration that was never served.")
				assert.NotContains(t, w.kubectl(t, "get", "mutatingwebhookconfigurations", "-o", "jsonpath={..webhooks[*].name}"), kind+".bind")
			})
		}
	}
}

// TestMistypedExpression looks at a field that classes do not have until their CRD is changed.
func TestMistypedExpression(t *testing.T) {
	w := sharedWorld(t)
	const group, kind = "mistyped.test", "claims.mistyped.test"
	classes := func(field string) string {
		return strings.NewReplacer("claims", "classes", "Claim", "Class", "Namespaced", "Cluster").
			Replace(fmt.Sprintf(schemaOfClaims, group, field+": {type: integer}"))
	}
	w.apply(t, fmt.Sprintf(schemaOfClaims, group, wholeReference)+classes("maxSizeGiB"))
	w.awaitCRDs(t, kind, "classes."+group)
	w.apply(t, class(group, "Class", "only", "")+vendor(group)+serving("classes."+group, kind)+
		claimKind(kind, "{classes: {fits: [{name: Size, message: too small, expression: class.spec.maxSize >= 5}]}}"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionExpressionsValid, metav1.ConditionFalse,
		"spec.classes.fits[Size].expression: line 1, column 11: the schema has no field class.spec.maxSize: did you mean class.spec.maxSizeGiB?")
	w.apply(t, classes("maxSize"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionExpressionsValid, metav1.ConditionTrue, "every expression compiles")
}

// TestClassKindsNotPermitted has two class kinds without rights, then one, then none.
func TestClassKindsNotPermitted(t *testing.T) {
	w := sharedWorld(t)
	const kind = "claims.narrow.test"
	for _, group := range []string{"narrow.test", "one.narrow.test", "two.narrow.test"} {
		w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster")
	}
	w.apply(t, class("one.narrow.test", "Class", "one", "")+class("two.narrow.test", "Class", "two", "")+
		claimKind(kind, "{}")+serving("classes.one.narrow.test", kind)+serving("classes.two.narrow.test", kind))
	for _, group := range []string{"one.narrow.test", "two.narrow.test"} {
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionClassKindsRead, "False",
			"kubectl create clusterrole classbind-classes."+group+" --verb=get,list,watch --resource=classes."+group)
	}
	w.awaitReason(t, &v1beta1.ClaimKind{}, kind, v1beta1.ReasonNoClassKind)
	assert.Regexp(t, `ClassKindsRead +False +NoClassKind`, w.kubectl(t, "get", "claimkind", kind), "We should show it in the column FAILING.")

	permit := func(group string) {
		role := "classbind-classes." + group
		w.kubectl(t, "create", "clusterrole", role, "--verb=get,list,watch", "--resource=classes."+group)
		w.kubectl(t, "label", "clusterrole", role, v1beta1.AggregateLabel+"=true")
	}
	permit("one.narrow.test")
	w.awaitClaims(t, kind)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionClassKindsRead, "False", `"classes.two.narrow.test": `)
	w.awaitReplicas(t, kind)
	bound, warnings := w.warned(t, claim("narrow.test", "one"))
	assert.Equal(t, "Class/one", classOf(bound), "We should go on without what was never read.")
	assert.Contains(
		t, fmt.Sprint(warnings), `classbind decided without the classes of "classes.two.narrow.test" (NotPermitted), which it cannot read`,
		"We should say so with every claim.",
	)

	permit("two.narrow.test")
	w.awaitClasses(t, "classes.two.narrow.test", 1)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionClassKindsRead, "True", "")
	_, warnings = w.warned(t, claim("narrow.test", "two"))
	assert.Empty(t, warnings)
}

// conversion of the CRD of the bad class kind: its classes are stored as v1 and
// listed as v2, which needs the webhook, which is not served, or nothing.
const (
	brokenConversion = `{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://localhost:1/convert"}}}`
	noConversion     = `{strategy: None, webhook: null}`
)

func conversion(how string) string {
	const version = `{name: %, served: true, storage: $, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}`
	return "spec: {conversion: " + how + ", versions: [" +
		strings.NewReplacer("%", "v1", "$", "false").Replace(version) + ", " + strings.NewReplacer("%", "v2", "$", "true").Replace(version) + "]}"
}

// TestOneBadClassKind restarts all replicas while the API server answers 500 to
// a client that lists the classes of one kind, which it listed before. Both kinds serve a third claim kind.
func TestOneBadClassKind(t *testing.T) {
	t.Parallel()
	w, before := servedWorld(t, controlplane.Options{})
	for _, group := range []string{"good.test", "bad.test"} {
		w.register(t, group, "{}", class(group, "Class", "only", fmt.Sprintf("labels: {of: %s}, ", group)))
	}
	w.resources(t, "Claim claims.both.test Namespaced")
	w.apply(t, lateVendor("both.test")+claimKind("claims.both.test", "{classes: {kinds: [{name: classes.bad.test}, {name: classes.good.test}]}}"))
	w.awaitClaims(t, "claims.both.test")
	of := func(group string) string {
		return claimWith("both.test", "of-"+group, fmt.Sprintf("{classSelector: {matchLabels: {of: %s}}}", group))
	}
	w.awaitBound(t, of("bad.test"), "Class/only", "We should offer the classes of both.")
	require.NoError(t, before.Stop())

	w.kubectl(t, "patch", "crd", "classes.bad.test", "--type=merge", "--patch", conversion(brokenConversion))
	eventually(t, func(c *attempt) {
		_, _, err := w.Kubectl(t.Context(), nil, "get", "--raw", "/apis/bad.test/v2/classes")
		require.ErrorContains(c, err, "conversion webhook")
	})

	replicas := []*replica{w.start(t), w.start(t)}
	w.awaitBound(t, claim("good.test", "good"), "Class/only", "We should bind the claims of others.")
	for _, r := range replicas {
		require.NoError(t, r.Ready(t.Context()), "We should be ready.")
	}
	w.awaitReason(t, &v1beta1.ClaimKind{}, "claims.bad.test", v1beta1.ReasonClassKindMissing)
	w.awaitRefused(t, claim("bad.test", "bad"), `the classes of "classes.bad.test", which were offered to claims of "claims.bad.test" before, `+
		`are not known yet (to go on without them, run: kubectl annotate classkind classes.bad.test classbind.io/ignored=true): `,
		"We should not decide on part of the classes, and name what is missing.")
	const command = "kubectl annotate classkind classes.bad.test classbind.io/ignored="
	down := func() {
		for _, part := range []string{`"classes.bad.test"`, "conversion webhook for bad.test/v1", command + "true"} {
			eventually(t, func(c *attempt) {
				_, _, err := w.create(t, of("good.test"), client.DryRunAll)
				refusedWith(c, err, http.StatusInternalServerError, part) // So the API server repeats our 503.
			}, "We should not narrow in silence what was served, and say who is down, why, and how to go on.")
			w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims.both.test", v1beta1.ConditionReady, metav1.ConditionFalse, part)
			w.awaitCondition(t, &v1beta1.ClassKind{}, "classes.bad.test", v1beta1.ConditionReady, metav1.ConditionFalse, strings.Trim(part, `"`))
		}
	}
	down()

	w.kubectl(t, "annotate", "classkind", "classes.bad.test", v1beta1.IgnoredAnnotation+"=true")
	const warning = `classbind decided without the classes of "classes.bad.test" (Ignored), which an admin has it ignore`
	w.awaitBound(t, of("good.test"), "Class/only", "We should go on with the classes of the other kind.")
	_, warnings := w.warned(t, of("good.test"), client.DryRunAll)
	assert.Contains(t, fmt.Sprint(warnings), warning, "We should say so to each author.")
	w.awaitBound(t, of("bad.test"), "", "We should offer its classes to nobody.")
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims.both.test", v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims.both.test", v1beta1.ConditionClassKindsRead, metav1.ConditionFalse, v1beta1.IgnoredAnnotation)
	w.awaitCondition(t, &v1beta1.ClassKind{}, "classes.bad.test", v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.IgnoredAnnotation)
	w.kubectl(t, "annotate", "classkind", "classes.bad.test", v1beta1.IgnoredAnnotation+"-")
	down()
	w.kubectl(t, "annotate", "classkind", "classes.bad.test", v1beta1.IgnoredAnnotation+"=true")
	w.awaitBound(t, of("good.test"), "Class/only", "We should go on again.")

	w.kubectl(t, "patch", "crd", "classes.bad.test", "--type=merge", "--patch", conversion(noConversion))
	w.awaitBound(t, claim("bad.test", "bad"), "", "We should ignore it, though it answers.")
	w.kubectl(t, "annotate", "classkind", "classes.bad.test", v1beta1.IgnoredAnnotation+"-")
	w.awaitBound(t, claim("bad.test", "bad"), "Class/only", "We should bind its claims once it answers.")
	w.awaitBound(t, of("bad.test"), "Class/only", "We should offer its classes to all again.")
	_, warnings = w.warned(t, of("good.test"), client.DryRunAll)
	assert.Empty(t, warnings)
	w.awaitClaims(t, "claims.bad.test")
}

// TestRegistrationWarnings creates registrations, in a dry run, to a cluster that has claims and classes
// of the group %[1]s, and classes and others of bare.%[1]s, which classbind may not read.
func TestRegistrationWarnings(t *testing.T) {
	w := sharedWorld(t)
	w.awaitRefused(
		t, strings.TrimPrefix(claimKind("claims.reviewed.test", "{claims: {when: 'claim ++'}}"), "---\n"), v1beta1.RegistrationEntry,
		"We should be asked.",
	)
	const label = ": label a ClusterRole that allows list and watch with classbind.io/aggregate-to-classbind=true"
	const permit = "apply the ClusterRole of the registration, or run: kubectl create clusterrole classbind-%[1]s --verb=get,list,watch --resource=%[1]s && " +
		"kubectl label clusterrole classbind-%[1]s classbind.io/aggregate-to-classbind=true"
	forbidden := func(kind, verb string) string {
		return fmt.Sprintf("%s is forbidden: classbind may not %s it", kind, verb)
	}
	const notCounted = "the claims of each class are not counted, so only those bound in the last 40 seconds count, and no class is deleted " +
		"whose ClassKind has spec.onDelete Deny: "
	const notInstalled = "the API server serves no such resource: install its CRD, or correct the name, which is <plural>.<group>"
	for name, tc := range map[string]struct {
		reason string
		before string // what is registered already
		// claimKind claims.%[1]s, or classKind classes.%[1]s, or a manifest
		claimKind, classKind, manifest string
		want                           []string
		refused                        string
	}{
		"Right": {
			reason: "We should say nothing where nothing is wrong.", before: classKind("classes.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"),
			claimKind: "{whenUnmatched: BindLater, classes: {kinds: [{name: classes.%[1]s}], related: [{name: plan, resource: classes.%[1]s, " +
				"nameExpression: claim.spec.plan}]}}",
		},
		"PathMisspelt": {
			reason: "We should say which field may be meant.", claimKind: "{reference: {path: .spec.clasRef}}",
			want: []string{"claims.%[1]s: no claim is bound, because the API server would remove the reference to its class: reference.path: the " +
				"schema has no field .spec.clasRef " +
				"(did you mean .spec.classRef?): correct spec.reference.path and spec.reference.form, or the schema"},
		},
		"NotInstalled": {
			reason: "We should say that there are no such claims.", manifest: claimKind("absents.%[1]s", "{}"),
			want: []string{"absents.%[1]s: the paths cannot be compared with the schema of the claims: " + notInstalled},
		},
		"NotPatched": {
			reason: "We should say which right late binding lacks.", claimKind: "{whenUnmatched: BindLater, claims: {resource: others.bare.%[1]s}}",
			want: []string{"claims.%[1]s: claims without a class are not bound later: " + forbidden("others.bare.%[1]s", "list") +
				": label a ClusterRole that allows list, watch and, for BindLater, patch with classbind.io/aggregate-to-classbind=true"},
		},
		"NotCounted": {
			reason: "We should say which right a strategy lacks.", claimKind: "{choice: {strategy: LeastClaims}, claims: {resource: others.bare.%[1]s}}",
			want: []string{"claims.%[1]s: " + notCounted + forbidden("others.bare.%[1]s", "list") +
				": label a ClusterRole that allows list, watch and, for BindLater, patch with classbind.io/aggregate-to-classbind=true"},
		},
		"NotCountedForDeletions": {
			reason: "We should say which right the refusal of deletions lacks.", before: claimKind("claims.%[1]s", "{claims: {resource: others.bare.%[1]s}}"),
			classKind: "{onDelete: Deny, claimKinds: [{name: claims.%[1]s}]}",
			want: []string{"classes.%[1]s: " + notCounted + forbidden("others.bare.%[1]s", "list") +
				": label a ClusterRole that allows list, watch and, for BindLater, patch with classbind.io/aggregate-to-classbind=true"},
		},
		"Related": {
			reason: "We should say what of the related objects cannot be read.",
			claimKind: "{classes: {related: [{name: a, resource: absents.%[1]s, nameExpression: claim.spec.a}, {name: b, resource: others.bare.%[1]s, " +
				"nameExpression: claim.spec.b}, {name: c, resource: classes.%[1]s, version: v7, nameExpression: claim.spec.c}]}}",
			want: []string{
				`claims.%[1]s: the API server serves no "absents.%[1]s": to expressions, the related object is absent, and a list is empty`,
				`claims.%[1]s: "classes.%[1]s/v7": the API server does not serve this version, "v7": set the version of the ` +
					`related object to one that is served, or leave it out`,
				`claims.%[1]s: "others.bare.%[1]s": ` + forbidden("others.bare.%[1]s", "list") + label,
			},
		},
		"Unregistered": {
			reason: "We should say so: the other may come later.", claimKind: "{classes: {kinds: [{name: absents.%[1]s}]}}",
			want: []string{
				`claims.%[1]s: spec.classes.kinds has names that no ClassKind has: "absents.%[1]s": correct the name, which is <plural>.<group>, or create the ClassKind`,
			},
		},
		"Conflict": {
			reason: "We should say which of the two is served.", before: claimKind("a.claims.%[1]s", "{claims: {resource: claims.%[1]s}}"), claimKind: "{}",
			want: []string{`claims.%[1]s: claim kind "claims.%[1]s" binds no claim: "a.claims.%[1]s", whose name comes first, binds claims of ` +
				`"claims.%[1]s" by the same reference, spec.classRef: ` +
				"set another spec.reference, or delete one of the two"},
		},
		"ClassesUnread": {
			reason: "We should say which classes cannot be read.", before: classKind("classes.bare.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"), claimKind: "{}",
			want: []string{
				`claims.%[1]s: claims are decided on without the classes of "classes.bare.%[1]s": ` + forbidden("classes.bare.%[1]s", "list") + ": " + fmt.Sprintf(
					permit, "classes.bare.%[1]s",
				),
			},
		},
		"ClassKindNotPermitted": {
			reason:   "We should say what lets classbind read them.",
			before:   claimKind("claims.%[1]s", "{}"),
			manifest: classKind("classes.bare.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"),
			want:     []string{"classes.bare.%[1]s: " + forbidden("classes.bare.%[1]s", "list") + ": " + fmt.Sprintf(permit, "classes.bare.%[1]s")},
		},
		"ClaimKindUnregistered": {
			reason: "We should say so: the other may come later.", classKind: "{claimKinds: [{name: absents.%[1]s}]}",
			want: []string{
				`classes.%[1]s: spec.claimKinds has names that no ClaimKind has: "absents.%[1]s": correct the name, which is <plural>.<group>, or create the ClaimKind`,
			},
		},
		"ExpressionInvalid": {
			reason: "We should refuse what can never work.", claimKind: `{claims: {when: "true &&\nclaim.spec ++"}}`,
			refused: `spec.claims.when: Invalid value: "true &&\\nclaim.spec ++": line 2, column 13: `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := strings.ToLower(name) + ".warn.test"
			in := func(text string) string { return strings.ReplaceAll(text, "%[1]s", group) }
			w.apply(t, fmt.Sprintf(
				schemaOfClaims, group,
				"plan: {type: string}\n              a: {type: string}\n              b: {type: string}\n              c: {type: string}\n              "+wholeReference,
			))
			w.resources(t, "Class classes."+group+" Cluster", "Class classes.bare."+group+" Cluster", "Other others.bare."+group+" Namespaced")
			w.apply(t, strings.ReplaceAll(lateVendor(group), "\n  name: ", "\n  name: warn-")+in(tc.before))
			manifest := in(tc.manifest)
			if tc.claimKind != "" {
				manifest = claimKind("claims."+group, in(tc.claimKind))
			} else if tc.classKind != "" {
				manifest = classKind("classes."+group, in(tc.classKind))
			}
			eventually(t, func(c *attempt) { // A replica learns what was before a moment later, and of the right to read it.
				_, told, err := w.create(t, manifest, client.DryRunAll)
				if tc.refused != "" {
					require.ErrorContains(c, err, tc.refused)
					return
				}
				require.NoError(c, err)
				require.Equal(c, in(strings.Join(tc.want, "\n")), strings.Join(told, "\n"))
			}, tc.reason)
		})
	}
}

// noWarnings checks that registrations are right, once all that they need is there.
func (w *world) noWarnings(t *testing.T, objects []*unstructured.Unstructured) {
	for _, object := range objects {
		if object.GroupVersionKind().Group != v1beta1.GroupVersion.Group {
			continue
		}
		eventually(t, func(c *attempt) { // The roles are aggregated a moment later.
			var text []string
			require.NoError(c, w.Patch(context.WithValue(t.Context(), warnings{}, &text), object.DeepCopy(),
				client.RawPatch(types.MergePatchType, []byte(metadataPatch("labels", "applied=again"))), client.DryRunAll))
			require.Empty(c, text, "We should not warn of what is right.")
		})
	}
}
