package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestConditions has what admins have to mend, and what they are told of it.
func TestConditions(t *testing.T) {
	t.Parallel()
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
				classKind(stores, "{claimKinds: [{name: "+kind+"}]}")+classKind(clusterStores, "{claimKinds: [{name: "+kind+"}]}")+claimKind(kind, "{reference: {path: .spec.storeRef, form: "+form+"}}"))
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
		w.apply(t, vendor(group)+class(group, "Class", "only", "")+classKind("classes.versions.test", "{claimKinds: [{name: claims.versions.test}]}")+claimKind(kind, "{}"))
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
		w.apply(t, vendor(group)+class(group, "Class", "refused", "labels: {of: class}, ")+class(group, "Other", "taken", "labels: {of: other}, ")+
			classKind("classes.refuse.test", "{claimKinds: [{name: claims.refuse.test}]}")+classKind("others.refuse.test", "{claimKinds: [{name: claims.refuse.test}]}")+claimKind(kind, "{}"))
		w.awaitClasses(t, "classes.refuse.test", 1)
		w.awaitClasses(t, "others.refuse.test", 1)
		w.awaitClaims(t, kind)
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
		w.apply(t, lateVendor(group)+classKind("classes.require.test", "{claimKinds: [{name: claims.require.test}]}")+claimKind(kind, "{whenUnmatched: BindLater}"))
		w.awaitClaims(t, kind)
		eventually(t, func(c *attempt) {
			_, warnings, err := w.create(t, claim(group, "unbound"), client.DryRunAll)
			require.True(c, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(c, err, "create or label a class; the schema of its kind requires .spec.classRef")
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
		w.resources(t, "Claim claims.strip.test Namespaced", "Class classes.strip.test Cluster")
		w.apply(t, lateVendor(group)+stripping+claimKind(kind, "{whenUnmatched: BindLater}")+classKind("classes.strip.test", "{claimKinds: [{name: claims.strip.test}]}"))
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
