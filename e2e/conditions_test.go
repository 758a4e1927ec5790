package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestConditions has what admins have to mend, and what they are told of it.
func TestConditions(t *testing.T) {
	w := sharedWorld(t)
	crd := func(group, reference string) string {
		return fmt.Sprintf(schemaOfClaims, group, strings.Replace(wholeReference, "classRef", reference, 1))
	}

	// A store reference as external-secrets has it: without a group, of two kinds.
	store := func(group string) string {
		return strings.Replace(crd(group, "storeRef"), "apiVersion: {type: string}, kind: {type: string}", "kind: {type: string, enum: [Store, ClusterStore]}", 1)
	}
	for form, detail := range map[string]string{
		"ObjectReference":    "the API server would remove fields of the reference to its class: reference.form ObjectReference: the schema has no field .spec.storeRef.apiVersion",
		"GroupKindReference": "the API server would remove fields of the reference to its class: reference.form GroupKindReference: the schema has no field .spec.storeRef.group",
		"Name":               "no claim is bound: reference.form Name: must be of type string, and is of type object: .spec.storeRef",
	} {
		t.Run("WrongForm/"+form, func(t *testing.T) {
			t.Parallel()
			group := strings.ToLower(form) + ".test"
			kind, stores, clusterStores := "claims."+group, "stores."+group, "clusterstores."+group
			w.resources(t, "Store "+stores+" Namespaced", "ClusterStore "+clusterStores+" Cluster")
			w.apply(t, store(group))
			w.apply(t, vendor(group)+class(group, "Store", "near", "namespace: default, labels: {at: here}, ")+class(group, "ClusterStore", "far", "labels: {at: sea}, ")+
				serving(stores, kind)+serving(clusterStores, kind)+claimKind(kind, "{reference: {path: .spec.storeRef, form: "+form+"}}"))
			w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionPathsValid, metav1.ConditionFalse, detail+": set spec.reference.form to KindReference")
			w.awaitBound(t, claim(group, "lost"), "", "We should bind no claim whose reference would name another store than the one that was drawn.")

			w.apply(t, claimKind(kind, "{reference: {path: .spec.storeRef, form: KindReference}}"))
			w.awaitClaims(t, kind)
			w.awaitClasses(t, stores, 1)
			w.awaitClasses(t, clusterStores, 1)
			for at, want := range map[string]string{"here": "Store/near", "sea": "ClusterStore/far"} {
				eventually(t, func(c *attempt) {
					bound, _, err := w.create(t, strings.ReplaceAll(claim(group, "at-"+at), "{}", "{matchLabels: {at: "+at+"}}"), client.DryRunAll)
					require.NoError(c, err)
					reference, _, _ := unstructured.NestedStringMap(bound.Object, "spec", "storeRef")
					require.Equal(c, want, reference["kind"]+"/"+reference["name"])
				}, "We should have proposed a form that fits, and tell kinds apart by it.")
			}
		})
	}

	t.Run("StoredVersion", func(t *testing.T) {
		t.Parallel()
		const group, kind = "versions.test", "claims.versions.test"
		w.resources(t, "Class classes.versions.test Cluster")
		first := crd(group, "classRef")
		_, version, _ := strings.Cut(first, "  versions:\n")
		second := strings.NewReplacer("name: v1\n", "name: v2\n", "storage: true", "storage: false")
		w.apply(t, first+strings.ReplaceAll(second.Replace(version), "classRef: {", "other: {"))
		w.apply(t, vendor(group)+class(group, "Class", "only", "")+serving("classes.versions.test", "claims.versions.test")+claimKind(kind, "{}"))
		w.awaitReason(t, &v1beta1.ClaimKind{}, kind, v1beta1.ReasonPathsInvalid)
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionPathsValid, metav1.ConditionFalse, "reference.path: the schema has no field .spec.classRef")

		w.apply(t, first+second.Replace(version))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionPathsValid, metav1.ConditionTrue, "the schema of the claims has the fields of every path")
		w.awaitClaims(t, kind)
		w.awaitClasses(t, "classes.versions.test", 1)
		w.binds(t, claim(group, "stored"), "Class/only", "We should bind claims once the version that is read has the reference.")
	})

	t.Run("ReferenceRefused", func(t *testing.T) {
		t.Parallel()
		const group, kind = "refuse.test", "claims.refuse.test"
		w.resources(t, "Class classes.refuse.test Cluster", "Other others.refuse.test Cluster")
		w.apply(t, strings.Replace(crd(group, "classRef"), "kind: {type: string}", "kind: {type: string, enum: [Other]}", 1))
		w.serves(t, vendor(group)+class(group, "Class", "refused", "labels: {of: class}, ")+class(group, "Other", "taken", "labels: {of: other}, ")+
			serving("classes.refuse.test", "claims.refuse.test")+serving("others.refuse.test", "claims.refuse.test")+claimKind(kind, "{}"))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionPathsValid, metav1.ConditionFalse,
			`reference.form ObjectReference: the schema does not allow "Class" in .spec.classRef.kind: the API server refuses claims with such a reference`)
		w.awaitRefused(t, strings.ReplaceAll(claim(group, "refused"), "{}", "{matchLabels: {of: class}}"), `spec.classRef.kind: Unsupported value: "Class"`, "We should be right.")
		w.binds(t, strings.ReplaceAll(claim(group, "bound"), "{}", "{matchLabels: {of: other}}"), "Other/taken", "We should not have one class kind stop the claims that another serves.")
	})

	t.Run("Required", func(t *testing.T) {
		t.Parallel()
		const group, kind = "require.test", "claims.require.test"
		w.resources(t, "Class classes.require.test Cluster")
		w.apply(t, strings.Replace(crd(group, "classRef"), "          spec:\n            type: object\n", "          spec:\n            type: object\n            required: [classRef]\n", 1))
		w.apply(t, lateVendor(group)+serving("classes.require.test", "claims.require.test")+claimKind(kind, "{whenUnmatched: BindLater}"))
		w.awaitClaims(t, kind)
		eventually(t, func(c *attempt) {
			_, warnings, err := w.create(t, claim(group, "unbound"), client.DryRunAll)
			refusedWith(c, err, http.StatusForbidden, "create or label a class; the schema of its kind requires .spec.classRef")
			require.NotContains(c, err.Error(), "Required value")
			require.Empty(c, warnings)
		}, "We should refuse the claim ourselves, and say what helps.")
		w.apply(t, class(group, "Class", "only", ""))
		w.binds(t, claim(group, "bound"), "Class/only", "We should have given the right advice.")
	})

	t.Run("ReferenceRemoved", func(t *testing.T) {
		t.Parallel()
		needsPolicies(t)
		const group, kind = "strip.test", "claims.strip.test"
		w.install(t, lateVendor(group)+stripping+claimKind(kind, "{whenUnmatched: BindLater}")+serving("classes.strip.test", "claims.strip.test"))
		w.awaitClaims(t, kind)
		w.binds(t, claim(group, "stripped"), "", "")
		eventually(t, func(c *attempt) {
			out, _, err := w.Kubectl(t.Context(), nil, "patch", kind, "stripped", "--type=merge", `-p={"spec":{"classRef":{"name":"by-hand"}}}`, "--dry-run=server", "-o=yaml")
			require.NoError(c, err)
			require.NotContains(c, out, "by-hand")
		}, "We should have a policy that removes references.")
		w.apply(t, class(group, "Class", "only", ""))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionLateBinding, metav1.ConditionFalse, "the API server stores claims without the reference to their class")
		eventually(t, func(c *attempt) {
			out := w.kubectl(t, "get", "events", "--field-selector=reason="+v1beta1.EventReferenceRemoved, "-o=jsonpath={.items[*].involvedObject.name}")
			require.Equal(c, "stripped", out)
		}, "We should tell the author.")

		w.kubectl(t, "delete", "mutatingadmissionpolicybinding", "strip-test")
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionLateBinding, metav1.ConditionTrue, "")
		eventually(t, func(c *attempt) {
			require.Equal(c, "only", w.kubectl(t, "get", kind, "stripped", "-o=jsonpath={.spec.classRef.name}"))
		}, "We should bind the claim in the end.")
	})

	t.Run("PathsOfCoreKinds", func(t *testing.T) {
		t.Parallel()
		w.apply(t, claimKind("podtemplates", "{claims: {namespaceSelector: {matchLabels: {none: here}}}, reference: {path: .template.spec.runtimeClassNam, form: Name}}"))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, "podtemplates", v1beta1.ConditionPathsValid, metav1.ConditionFalse, "reference.path: the schema has no field .template.spec.runtimeClassNam")
		w.apply(t, claimKind("podtemplates", "{claims: {namespaceSelector: {matchLabels: {none: here}}}, reference: {path: .template.spec.runtimeClassName, form: Name}}"))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, "podtemplates", v1beta1.ConditionPathsValid, metav1.ConditionTrue, "")
	})
}

// stripping removes the references of claims of strip.test when they are updated.
const stripping = `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: strip-test}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [strip.test], apiVersions: [v1], operations: [UPDATE], resources: [claims]}]
  matchConditions: [{name: has-a-reference, expression: "has(object.spec.classRef)"}]
  mutations:
  - {patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/spec/classRef"}]'}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: strip-test}
spec: {policyName: strip-test}
`

func (w *world) awaitCondition(
	t testing.TB, object client.Object, name, conditionType string, status metav1.ConditionStatus, text string,
) {
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: name}, object))
		condition := meta.FindStatusCondition(conditionsOf(object), conditionType)
		require.NotNil(c, condition)
		require.Equal(c, status, condition.Status, "%v", condition)
		require.Contains(c, condition.Message, text)
	})
}

func conditionsOf(registration client.Object) []metav1.Condition {
	switch o := registration.(type) {
	case *v1beta1.ClaimKind:
		return o.Status.Conditions
	case *v1beta1.ClassKind:
		return o.Status.Conditions
	}
	return nil
}

// schemaOfClaims is a CRD of claims with a reference at .spec.classRef, or what replaces this.
const schemaOfClaims = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: claims.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Claim, plural: claims}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              classSelector: {type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}}}
              %[2]s
`

const wholeReference = "classRef: {type: object, properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}}}"

// TestWrongRegistrations applies each to a cluster that has claims of the kind. One that was never served stops no claim, and says why it
// does nothing. One that was served, and is changed to it, stays in force.
func TestWrongRegistrations(t *testing.T) {
	w := sharedWorld(t)
	for name, tc := range map[string]struct {
		field string // of the claims, instead of wholeReference
		spec  string // of the ClaimKind
		// others are further registrations, with %s for the group.
		others                         string
		withoutClassKind, withoutRight bool
		reason, message                string
		checked                        string // in files, where that is another message
		// served is what claims are told if the registration was right before; empty, it is not tried.
		served string
	}{
		"PathAbsent":     {field: "className: {type: string}", spec: "{}", reason: v1beta1.ReasonReferencePruned, message: "the schema has no field .spec.classRef"},
		"PathMisspelt":   {spec: "{reference: {path: .spec.clasRef}}", reason: v1beta1.ReasonReferencePruned, message: "the schema has no field .spec.clasRef", served: "the schema has no field .spec.clasRef"},
		"WrongType":      {spec: "{reference: {path: .spec.classRef, form: Name}}", reason: v1beta1.ReasonPathsInvalid, message: "must be of type string", served: "must be of type string"},
		"FormPruned":     {spec: "{reference: {path: .spec.classRef, form: TypedLocalObjectReference}}", reason: v1beta1.ReasonReferencePruned, message: ".spec.classRef.apiGroup", served: ".spec.classRef.apiGroup"},
		"SelectorAbsent": {spec: "{selector: {path: .spec.absent}}", reason: v1beta1.ReasonPathsInvalid, message: "selector.path: the schema has no field .spec.absent", served: "selector.path: the schema has no field .spec.absent"},
		"CompanyRequired": {
			field: "classRef: {type: object, required: [major], properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}, major: {type: integer}}}",
			spec:  "{}", reason: v1beta1.ReasonPathsInvalid, message: "the schema requires .spec.classRef.major, which the reference does not have",
		},
		"ReferenceRefused":      {field: strings.Replace(wholeReference, "kind: {type: string}", "kind: {type: string, enum: [Other]}", 1), spec: "{}", reason: v1beta1.ReasonAllReferencesRefused, message: `the schema does not allow "Class" in .spec.classRef.kind`},
		"VersionNotServed":      {spec: "{claims: {version: v2}}", reason: v1beta1.ReasonVersionNotServed, message: "v2", served: "write the paths for a version that is served"},
		"NoClassKind":           {spec: "{}", withoutClassKind: true, reason: v1beta1.ReasonNoClassKind, message: "create a ClassKind for it"},
		"ClassKindNotInstalled": {spec: "{}", withoutClassKind: true, others: classKind("absents.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"), reason: v1beta1.ReasonNoClassKind, message: "create a ClassKind for it", checked: "(NotInstalled)"},
		"ClassKindNotPermitted": {spec: "{}", withoutRight: true, reason: v1beta1.ReasonNoClassKind, message: "see the condition ClassKindsRead"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, served := range []bool{false, true} {
				group := fmt.Sprintf("%s.wrong.test", strings.ToLower(name))
				if served {
					if tc.served == "" {
						break
					}
					group = "served-" + group
				}
				kind := "claims." + group
				w.resources(t, "Class classes."+group+" Cluster")
				w.apply(t, fmt.Sprintf(schemaOfClaims, group, cmp.Or(tc.field, wholeReference))+class(group, "Class", "only", ""))
				w.created(t, claim(group, "before"))
				classKinds := serving("classes."+group, kind)
				if tc.withoutClassKind {
					classKinds = strings.ReplaceAll(tc.others, "%[1]s", group)
				}
				if !tc.withoutRight {
					classKinds += vendor(group)
				}
				if served {
					w.apply(t, classKinds+claimKind(kind, "{}"))
					w.awaitClaims(t, kind)
				}
				if !tc.withoutRight && !inPods() {
					files := classbind.CRD("Class", "classes."+group, "Cluster", classbind.AnySchema) + fmt.Sprintf(schemaOfClaims, group, cmp.Or(tc.field, wholeReference))
					check := exec.CommandContext(t.Context(), command, "check", "--strict", "-f", "-")
					check.Stdin = strings.NewReader(files + classKinds + claimKind(kind, tc.spec))
					out, err := check.CombinedOutput()
					require.Error(t, err)
					assert.Contains(t, string(out), cmp.Or(tc.checked, tc.message), "We should say the same of files.")
				}

				w.apply(t, classKinds+claimKind(kind, tc.spec))
				w.awaitReason(t, &v1beta1.ClaimKind{}, kind, tc.reason)
				assert.Contains(t, w.kubectl(t, "get", "claimkind", kind, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].message}"), tc.message)
				if served {
					w.awaitRefused(t, claim(group, "after"), tc.served, "We should go on to bind every claim of a kind that was served, or none.")
					continue
				}
				for i := range 10 { // An entry would have to be written, and heard of.
					_, _, err := w.create(t, claim(group, fmt.Sprint("after-", i)))
					require.NoError(t, err, "We should stop no claim for a registration that was never served.")
					time.Sleep(50 * time.Millisecond)
				}
				assert.NotContains(t, w.kubectl(t, "get", "mutatingwebhookconfigurations", "-o", "jsonpath={..webhooks[*].name}"), kind+".bind")
			}
		})
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
	began := time.Now()
	w.awaitClaims(t, kind)
	t.Logf("Claims were bound %s after the role was applied.", time.Since(began).Round(time.Millisecond))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionClassKindsRead, "False", `"classes.two.narrow.test": `)
	bound, warnings := w.warned(t, claim("narrow.test", "one"))
	assert.Equal(t, "Class/one", classOf(bound), "We should go on without what was never read.")
	assert.Contains(t, fmt.Sprint(warnings), `classbind decided without the classes of "classes.two.narrow.test" (NotPermitted), which it cannot read`, "We should say so with every claim.")

	permit("two.narrow.test")
	w.awaitClasses(t, "classes.two.narrow.test", 1)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionClassKindsRead, "True", "")
	_, warnings = w.warned(t, claim("narrow.test", "two"))
	assert.Empty(t, warnings)
}

// conversion of the CRD of the bad class kind: its classes are stored as v1 and
// listed as v2, which needs the webhook, which nobody serves, or nothing.
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
// whoever lists the classes of one kind, which it listed before.
func TestOneBadClassKind(t *testing.T) {
	t.Parallel()
	w, before := servedWorld(t, controlplane.Options{})
	for _, group := range []string{"good.test", "bad.test"} {
		w.register(t, group, "{}", class(group, "Class", "only", ""))
	}
	require.NoError(t, before.Stop())

	w.kubectl(t, "patch", "crd", "classes.bad.test", "--type=merge", "--patch", conversion(brokenConversion))
	eventually(t, func(c *attempt) {
		_, _, err := w.Kubectl(t.Context(), nil, "get", "--raw", "/apis/bad.test/v2/classes")
		require.ErrorContains(c, err, "conversion webhook")
	})

	start := time.Now()
	replicas := []*replica{w.start(t), w.start(t)}
	w.awaitBound(t, claim("good.test", "good"), "Class/only", "We should bind the claims of others.")
	t.Logf("Claims of the other kind were bound %s after the restart.", time.Since(start).Round(time.Millisecond))
	for _, r := range replicas {
		require.NoError(t, r.Ready(t.Context()), "We should be ready.")
	}
	w.awaitReason(t, &v1beta1.ClaimKind{}, "claims.bad.test", v1beta1.ReasonClassKindMissing)
	w.awaitRefused(t, claim("bad.test", "bad"), `the classes of "classes.bad.test", which were offered to claims of "claims.bad.test" before, are not known yet: `,
		"We should not decide on part of the classes, and name what is missing.")
	w.awaitCondition(t, &v1beta1.ClassKind{}, "classes.bad.test", v1beta1.ConditionReady, metav1.ConditionTrue, "") // We wait for it at the next restart, too.

	w.kubectl(t, "patch", "crd", "classes.bad.test", "--type=merge", "--patch", conversion(noConversion))
	w.awaitBound(t, claim("bad.test", "bad"), "Class/only", "We should bind its claims once it answers.")
	w.awaitClaims(t, "claims.bad.test")
}

// TestValueOfALaterRelease has the CRD of a later release, which knows another strategy.
func TestValueOfALaterRelease(t *testing.T) {
	long(t)
	t.Parallel()
	const group, other = "later-value.test", "same-value.test"
	w, _ := servedWorld(t, controlplane.Options{})
	w.kubectl(t, "patch", "crd", "claimkinds.classbind.io", "--type=json", "--patch", `[{"op": "add",
		"path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/choice/properties/strategy/enum/-", "value": "Cheapest"}]`)
	w.register(t, group, "{}", class(group, "Class", "only", ""))
	w.register(t, other, "{}", class(other, "Class", "only", ""))
	eventually(t, func(c *attempt) {
		_, _, err := w.Kubectl(t.Context(), strings.NewReader(claimKind("claims."+group, "{choice: {strategy: Cheapest}}")), "apply", "--server-side", "--force-conflicts", "-f", "-")
		require.NoError(c, err) // The API server knows of a CRD a little later.
	})
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ConditionReady, metav1.ConditionFalse,
		`has the choice.strategy "Cheapest", which this release of classbind does not know`)
	w.awaitRefused(t, claim(group, "unknown"), "Cheapest", "We should bind no claim by a strategy that we do not know.")
	w.binds(t, claim(other, "known"), "Class/only", "We should go on for other kinds.")
}

// TestRegistrationWarnings creates registrations, first in a dry run, to a cluster that has claims and classes
// of the group %[1]s, and classes and others of bare.%[1]s, which classbind may not read.
func TestRegistrationWarnings(t *testing.T) {
	w := sharedWorld(t)
	w.awaitReviewed(t)
	const label = ": label a ClusterRole that allows list and watch with classbind.io/aggregate-to-classbind=true"
	const permit = "apply the ClusterRole of the registration, or run: kubectl create clusterrole classbind-%[1]s --verb=get,list,watch --resource=%[1]s && " +
		"kubectl label clusterrole classbind-%[1]s classbind.io/aggregate-to-classbind=true"
	forbidden := func(kind, verb string) string {
		return fmt.Sprintf("%s is forbidden: classbind may not %s it", kind, verb)
	}
	const notCounted = "the claims of each class are not counted, so only those bound in the last 40 seconds count, and no class is deleted whose ClassKind has spec.onDelete Deny: "
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
			claimKind: "{whenUnmatched: BindLater, classes: {kinds: [{name: classes.%[1]s}], related: [{name: plan, resource: classes.%[1]s, nameExpression: claim.spec.plan}]}}",
		},
		"RightClassKind": {reason: "We should say nothing of a class kind either.", before: claimKind("claims.%[1]s", "{}"), classKind: "{claimKinds: [{name: claims.%[1]s}]}"},
		"NotServedYet":   {reason: "We should wait for the ClassKind, which is the next document of most files.", claimKind: "{}"},
		"PathMisspelt": {
			reason: "We should say which field may be meant.", claimKind: "{reference: {path: .spec.clasRef}}",
			want: []string{"claims.%[1]s: no claim is bound, because the API server would remove the reference to its class: reference.path: the schema has no field .spec.clasRef " +
				"(did you mean .spec.classRef?): correct spec.reference.path and spec.reference.form, or the schema"},
		},
		"FormPruned": {
			reason: "We should say which form fits.", claimKind: "{reference: {path: .spec.classRef, form: TypedLocalObjectReference}}",
			want: []string{"claims.%[1]s: no claim is bound, because the API server would remove fields of the reference to its class: " +
				"reference.form TypedLocalObjectReference: the schema has no field .spec.classRef.apiGroup: set spec.reference.form to ObjectReference"},
		},
		"VersionNotServed": {
			reason: "We should say which versions there are.", claimKind: "{claims: {version: v2}}",
			want: []string{`claims.%[1]s: the paths cannot be compared with the schema of the claims: the API server does not serve the version for which the paths are written, "v2", but v1: ` +
				"write the paths for one of these, and set spec.claims.version to it"},
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
			reason:    "We should say what of the related objects cannot be read.",
			claimKind: "{classes: {related: [{name: a, resource: absents.%[1]s, nameExpression: claim.spec.a}, {name: b, resource: others.bare.%[1]s, nameExpression: claim.spec.b}, {name: c, resource: classes.%[1]s, version: v7, nameExpression: claim.spec.c}]}}",
			want: []string{
				`claims.%[1]s: the API server serves no "absents.%[1]s": to expressions, the related object is absent`,
				`claims.%[1]s: "classes.%[1]s/v7": the API server does not serve this version, "v7": set the version in spec.classes.related to one that is served, or leave it out`,
				`claims.%[1]s: "others.bare.%[1]s": ` + forbidden("others.bare.%[1]s", "list") + label,
			},
		},
		"Unregistered": {
			reason: "We should say so: the other may come later.", claimKind: "{classes: {kinds: [{name: absents.%[1]s}]}}",
			want: []string{`claims.%[1]s: spec.classes.kinds has names that no ClassKind has: "absents.%[1]s": correct the name, which is <plural>.<group>, or create the ClassKind`},
		},
		"Conflict": {
			reason: "We should say which of the two is served.", before: claimKind("a.claims.%[1]s", "{claims: {resource: claims.%[1]s}}"), claimKind: "{}",
			want: []string{`claims.%[1]s: claim kind "claims.%[1]s" binds no claim: "a.claims.%[1]s", whose name comes first, binds claims of "claims.%[1]s" by the same reference, spec.classRef: ` +
				"set another spec.reference, or delete one of the two"},
		},
		"ConflictOfOther": {
			reason: "We should say which other one is served no more.", before: claimKind("z.claims.%[1]s", "{claims: {resource: claims.%[1]s}}"), claimKind: "{}",
			want: []string{`claims.%[1]s: claim kind "z.claims.%[1]s" binds no claim: "claims.%[1]s", whose name comes first, binds claims of "claims.%[1]s" by the same reference, spec.classRef: ` +
				"set another spec.reference, or delete one of the two"},
		},
		"ClassesUnread": {
			reason: "We should say which classes cannot be read.", before: classKind("classes.bare.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"), claimKind: "{}",
			want: []string{`claims.%[1]s: claims are decided on without the classes of "classes.bare.%[1]s": ` + forbidden("classes.bare.%[1]s", "list") + ": " + fmt.Sprintf(permit, "classes.bare.%[1]s")},
		},
		"ClassKindNotInstalled": {
			reason: "We should say that there are no such classes.", before: claimKind("claims.%[1]s", "{}"), manifest: classKind("absents.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"),
			want: []string{"absents.%[1]s: " + notInstalled},
		},
		"ClassKindNotPermitted": {
			reason: "We should say what lets classbind read them.", before: claimKind("claims.%[1]s", "{}"), manifest: classKind("classes.bare.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"),
			want: []string{"classes.bare.%[1]s: " + forbidden("classes.bare.%[1]s", "list") + ": " + fmt.Sprintf(permit, "classes.bare.%[1]s")},
		},
		"ClaimKindUnregistered": {
			reason: "We should say so: the other may come later.", classKind: "{claimKinds: [{name: absents.%[1]s}]}",
			want: []string{`classes.%[1]s: spec.claimKinds has names that no ClaimKind has: "absents.%[1]s": correct the name, which is <plural>.<group>, or create the ClaimKind`},
		},
		"Several": {
			reason: "We should say all of it.", claimKind: "{selector: {path: .spec.absent}, classes: {kinds: [{name: absents.%[1]s}]}}",
			want: []string{
				"claims.%[1]s: no claim is bound: selector.path: the schema has no field .spec.absent: correct the ClaimKind, or the schema",
				`claims.%[1]s: spec.classes.kinds has names that no ClassKind has: "absents.%[1]s": correct the name, which is <plural>.<group>, or create the ClassKind`,
			},
		},
		"ExpressionInvalid": {
			reason: "We should refuse what can never work.", claimKind: `{claims: {when: "true &&\nclaim.spec ++"}}`,
			refused: `spec.claims.when: Invalid value: "true &&\\nclaim.spec ++": line 2, column 13: `,
		},
		"ClassExpressionInvalid": {
			reason: "We should refuse it of a class kind, too.", classKind: "{fits: [{name: Size, expression: claim.size ++}]}",
			refused: `spec.fits[Size].expression: Invalid value: "claim.size ++": line 1, column 13: `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := strings.ToLower(name) + ".warn.test"
			in := func(text string) string { return strings.ReplaceAll(text, "%[1]s", group) }
			w.apply(t, fmt.Sprintf(schemaOfClaims, group, "plan: {type: string}\n              a: {type: string}\n              b: {type: string}\n              c: {type: string}\n              "+wholeReference))
			w.resources(t, "Class classes."+group+" Cluster", "Class classes.bare."+group+" Cluster", "Other others.bare."+group+" Namespaced")
			w.apply(t, strings.ReplaceAll(lateVendor(group), "\n  name: ", "\n  name: warn-")+in(tc.before))
			manifest := in(tc.manifest)
			if tc.claimKind != "" {
				manifest = claimKind("claims."+group, in(tc.claimKind))
			} else if tc.classKind != "" {
				manifest = classKind("classes."+group, in(tc.classKind))
			}
			want := in(strings.Join(tc.want, "\n"))
			if tc.before != "" { // A replica hears of it a moment later, and of the right to read it.
				eventually(t, func(c *attempt) {
					_, told, _ := w.create(t, manifest, client.DryRunAll)
					require.Equal(c, want, strings.Join(told, "\n"))
				})
			}
			for _, o := range [][]client.CreateOption{{client.DryRunAll}, nil} {
				_, told, err := w.create(t, manifest, o...)
				if tc.refused != "" {
					require.ErrorContains(t, err, tc.refused, tc.reason)
					continue
				}
				require.NoError(t, err, tc.reason)
				assert.Equal(t, want, strings.Join(told, "\n"), tc.reason)
			}
		})
	}
}

// awaitReviewed waits until the API server asks about registrations.
func (w *world) awaitReviewed(t *testing.T) {
	w.awaitRefused(t, strings.TrimPrefix(claimKind("claims.reviewed.test", "{claims: {when: 'claim ++'}}"), "---\n"), v1beta1.RegistrationEntry, "We should be asked.")
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

// TestRegistrationsWithoutClassbind has no replica while registrations are applied, and one while they are mended.
func TestRegistrationsWithoutClassbind(t *testing.T) {
	t.Parallel()
	const name = "claims.alone.test"
	w, r := servedWorld(t, controlplane.Options{})
	w.awaitReviewed(t)
	require.NoError(t, r.Stop())
	broken := strings.TrimPrefix(claimKind(name, "{claims: {when: 'claim ++'}}"), "---\n")
	_, told, err := w.create(t, broken)
	require.NoError(t, err, "We should stop no registration while we are down.")
	assert.Empty(t, told)

	w.serve(t)
	w.awaitReviewed(t)
	k, text := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}}, []string(nil)
	require.NoError(t, w.Patch(context.WithValue(t.Context(), warnings{}, &text), k, client.RawPatch(types.MergePatchType, []byte(metadataPatch("labels", "mended=no")))),
		"We should not refuse what an update leaves as it was.")
	require.NotEmpty(t, text)
	assert.Contains(t, text[0], "claims.alone.test: spec.claims.when: line 1, column 8: ", "We should say so all the same.")
	err = w.patch(t, "claimkinds.classbind.io", name, `{"spec":{"claims":{"when":"claim ++ 1 ++"}}}`)
	assert.True(t, apierrors.IsInvalid(err), "We should refuse another one that does not compile: %v", err)
	require.NoError(t, w.patch(t, "claimkinds.classbind.io", name, `{"spec":{"claims":{"when":"true"}}}`))
}
