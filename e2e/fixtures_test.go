package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/load"
)

func object(group, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	o.SetName(name)
	return o
}

// selecting is a claim of classes with these labels; nil, any class satisfies it.
func selecting(group, kind, namespace, name string, labels map[string]any) *unstructured.Unstructured {
	claim, selector := object(group, kind, name), map[string]any{}
	if labels != nil {
		selector["matchLabels"] = labels
	}
	claim.SetNamespace(namespace)
	claim.Object["spec"] = map[string]any{"classSelector": selector}
	return claim
}

// unopinionated is a claim without a selector, in the namespace default.
func unopinionated(group, name string) *unstructured.Unstructured {
	claim := object(group, "Claim", name)
	claim.SetNamespace("default")
	return claim
}

// naming is a claim with a reference in a namespace; "", it has none.
func naming(group, namespace, name, reference string) *unstructured.Unstructured {
	claim, spec := object(group, "Claim", name), map[string]any{}
	claim.SetNamespace(namespace)
	for field := range strings.FieldsSeq(reference) {
		key, value, _ := strings.Cut(field, "=")
		_ = unstructured.SetNestedField(spec, value, "classRef", key)
	}
	claim.Object["spec"] = spec
	return claim
}

// class of a kind; metadata is more of it than the name.
func class(group, kind, name, metadata string) string {
	return fmt.Sprintf("---\napiVersion: %s/v1\nkind: %s\nmetadata: {%sname: %s}\n", group, kind, metadata, name)
}

// tierClass is a class with its tier in a label.
func tierClass(group, tier string) string {
	return class(group, "Class", tier, fmt.Sprintf("labels: {tier: %s}, ", tier))
}

const isDefault = `annotations: {resourceclass.crossplane.io/is-default-class: "true"}, `

// claimWith a name, after which more metadata may follow, and a spec, in the namespace default.
func claimWith(group, name, spec string) string { return ofKind(group, "Claim", name, spec) }

// ofKind is claimWith for other kinds.
func ofKind(group, kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: default, name: %s}\nspec: %s\n", group, kind, name, spec)
}

// claim that any class satisfies, in the namespace default.
func claim(group, name string) string { return claimWith(group, name, "{classSelector: {}}") }

func claimIn(group, namespace, name string) string {
	return strings.Replace(claim(group, name), "namespace: default", "namespace: "+namespace, 1)
}

// lateVendor lets classbind watch and bind the claims of a group, too.
func lateVendor(group string) string {
	return strings.Replace(vendor(group), "[get, list, watch]", "[get, list, watch, patch]", 1)
}

// kinds are the registrations of Claim and Class of a group, with the spec of the ClaimKind, and the rights that they need.
func kinds(group, spec string) string {
	return lateVendor(group) + claimKind("claims."+group, spec) + serving("classes."+group, "claims."+group)
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

// resources installs CRDs that prescribe nothing, from "Kind plural.group scope".
func (w *world) resources(t testing.TB, lines ...string) {
	var manifest strings.Builder
	for _, line := range lines {
		var kind, name, scope string
		must(fmt.Sscan(line, &kind, &name, &scope))(t)
		manifest.WriteString(classbind.CRD(kind, name, scope, classbind.AnySchema))
	}
	w.apply(t, manifest.String())
}

func (w *world) awaitCRDs(t testing.TB, names ...string) {
	for _, name := range names {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		eventually(t, func(c *attempt) {
			require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: name}, crd))
			require.True(c, apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established))
			served := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
			kind := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
			must(w.RESTMapper().RESTMapping(kind, crd.Spec.Versions[served].Name))(c) // Discovery comes later.
		})
	}
}

// install CRDs for the Claims and Classes of the registrations of a manifest, if they are missing, and apply it.
func (w *world) install(t *testing.T, manifest string) {
	defined := map[string]bool{}
	for _, object := range documents(t, manifest) {
		name := object.GetName()
		plural, _, _ := strings.Cut(name, ".")
		crd := map[string]string{"claims": "Claim " + name + " Namespaced", "classes": "Class " + name + " Cluster"}[plural]
		if object.GetKind() == "CustomResourceDefinition" {
			defined[name] = true
		} else if _, err := w.RESTMapper().KindFor(schema.ParseGroupResource(name).WithVersion("")); crd != "" && err != nil && !defined[name] {
			w.resources(t, crd)
		}
	}
	w.apply(t, manifest)
}

// serves installs a manifest, and waits until claims of its ClaimKinds are bound, and the classes that it has of its ClassKinds are offered.
func (w *world) serves(t *testing.T, manifest string) {
	w.install(t, manifest)
	objects, classes := documents(t, manifest), map[string]int{}
	for _, object := range objects {
		mapping := must(w.RESTMapper().RESTMapping(object.GroupVersionKind().GroupKind()))(t)
		classes[mapping.Resource.GroupResource().String()]++
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "ClaimKind":
			w.awaitClaims(t, object.GetName())
		case "ClassKind":
			w.awaitClasses(t, object.GetName(), classes[object.GetName()])
		}
	}
}

// register the kinds of a group, with these classes.
func (w *world) register(t *testing.T, group, spec string, classes ...string) {
	w.serves(t, kinds(group, spec)+strings.Join(classes, ""))
}

// namespaces of these names.
func (w *world) namespaces(t *testing.T, names ...string) {
	for _, name := range names {
		require.NoError(t, w.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
}

// createMany claims of the tier gold in the namespace default, as fast as it goes.
func (w *world) createMany(t *testing.T, group string, n int) {
	concurrently(t, n, func(i int) error {
		return w.Create(t.Context(), selecting(group, "Claim", "default", fmt.Sprint("claim-", i), map[string]any{"tier": "gold"}))
	})
}

func (w *world) claimsOf(t *testing.T, group string) []unstructured.Unstructured {
	return w.claimsIn(t, group, "default")
}

func (w *world) claimsIn(t *testing.T, group, namespace string) (all []unstructured.Unstructured) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "ClaimList"})
	for {
		require.NoError(t, w.List(t.Context(), list, client.InNamespace(namespace), client.Limit(500), client.Continue(list.GetContinue())))
		all = append(all, list.Items...)
		if list.GetContinue() == "" {
			return all
		}
	}
}

// at is a field of an object, nil if it is not there.
func at(object *unstructured.Unstructured, names ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, names...)
	return value
}

// classOf a claim is the KIND/NAME of its reference, or empty.
func classOf(claim *unstructured.Unstructured) string { return load.Class(claim) }

// awaitClaims waits until claims of the kind are bound, as the API server sees
// it: it knows of a new webhook a little later than of the entry for it.
func (w *world) awaitClaims(t *testing.T, claimKind string) {
	w.awaitKind(t, claimKind, "", func(c *attempt, k *v1beta1.ClaimKind) {
		require.True(c, meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionReady), "%v", k.Status.Conditions)
	})
	probe := &unstructured.Unstructured{}
	eventually(t, func(c *attempt) {
		kind := must(w.RESTMapper().KindFor(schema.ParseGroupResource(claimKind).WithVersion("")))(c)
		probe.SetGroupVersionKind(kind)
	}, "We should see the API server serve a new version.")
	probe.SetNamespace("default")
	probe.SetGenerateName("probe-")
	probe.SetAnnotations(map[string]string{v1beta1.ClassSelectorAnnotation: "="})
	eventually(t, func(c *attempt) {
		err := w.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
		require.True(c, apierrors.IsInvalid(err), "%v", err)
	}, "We should see the API server call the webhook.")
}

func (w *world) awaitClasses(t *testing.T, classKind string, n int) {
	k := &v1beta1.ClassKind{}
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: classKind}, k))
		require.True(c, meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionReady), "%v", k.Status.Conditions)
		require.EqualValues(c, n, k.Status.Classes)
	})
	for _, claimKind := range k.Spec.ClaimKinds {
		w.awaitReplicas(t, claimKind.Name)
	}
}

func (w *world) awaitKind(t testing.TB, name, reason string, check func(*attempt, *v1beta1.ClaimKind)) {
	k := &v1beta1.ClaimKind{}
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: name}, k))
		check(c, k)
	}, reason)
}

func (w *world) awaitReason(t *testing.T, object client.Object, name, reason string) {
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: name}, object))
		ready := meta.FindStatusCondition(conditionsOf(object), v1beta1.ConditionReady)
		require.NotNil(c, ready)
		require.Equal(c, reason, ready.Reason, "%v", ready)
		require.Equal(c, metav1.ConditionFalse, ready.Status)
	})
}

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

// awaitGuard waits until the API server asks about the classes of a kind that has its weight in an annotation.
func (w *world) awaitGuard(t testing.TB, group, kind, classKind string) {
	w.awaitGuardOf(t, classKind, class(group, kind, "probe", "annotations: {resourceclass.crossplane.io/weight: x}, "))
}

// awaitGuardOf waits for the same with a class of the kind whose weight is malformed: the API server knows of a new webhook a little later
// than of the entry for it.
func (w *world) awaitGuardOf(t testing.TB, classKind, malformed string) {
	w.awaitCondition(t, &v1beta1.ClassKind{}, classKind, v1beta1.ConditionGuarded, metav1.ConditionTrue, "")
	w.awaitRefused(t, malformed, "is invalid", "We should see the API server call the webhook.")
}

// binds a claim that is created to a class; empty, to none.
func (w *world) binds(t testing.TB, manifest, class, reason string, o ...client.CreateOption) *unstructured.Unstructured {
	claim := w.created(t, manifest, o...)
	assert.Equal(t, class, classOf(claim), reason)
	return claim
}

func (w *world) awaitBound(t testing.TB, manifest, class, reason string) {
	eventually(t, func(c *attempt) {
		claim, _, err := w.create(t, manifest, client.DryRunAll)
		require.NoError(c, err)
		require.Equal(c, class, classOf(claim))
	}, reason)
}

// awaitStored waits until a claim is stored with a class.
func (w *world) awaitStored(t testing.TB, claim *unstructured.Unstructured, class, reason string) {
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		require.Equal(c, class, classOf(claim))
	}, reason)
}

func (w *world) awaitReference(t *testing.T, probe *unstructured.Unstructured, at []string, want any) {
	eventually(t, func(c *attempt) {
		claim := probe.DeepCopy()
		require.NoError(c, w.Create(t.Context(), claim, client.DryRunAll))
		got, _, err := unstructured.NestedFieldNoCopy(claim.Object, at...)
		require.NoError(c, err)
		require.Equal(c, want, got)
	})
}

func (w *world) awaitRefused(t testing.TB, manifest, text, reason string) {
	eventually(t, func(c *attempt) {
		_, _, err := w.create(t, manifest, client.DryRunAll)
		require.ErrorContains(c, err, text)
	}, reason)
}

// refusedWith checks that an error has this code, and these parts in its message.
func refusedWith(t require.TestingT, err error, code int, parts ...string) {
	status := apierrors.APIStatus(nil)
	require.ErrorAs(t, err, &status)
	assert.EqualValues(t, code, status.Status().Code, "%v", err)
	for _, part := range parts {
		require.ErrorContains(t, err, part)
	}
}

func documents(t testing.TB, manifest string) (objects []*unstructured.Unstructured) {
	for document := range strings.SplitSeq("\n"+manifest, "\n---") {
		object := &unstructured.Unstructured{}
		text := must(yaml.YAMLToJSON([]byte(document)))(t)
		require.NoError(t, utiljson.Unmarshal(text, &object.Object)) // As the API server has them, with whole numbers.
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects
}

func manifestOf(t *testing.T, object *unstructured.Unstructured) string {
	return string(must(yaml.Marshal(object.Object))(t))
}
