package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestReferences has claims of the shapes that other projects have, and counts which of
// them the API server calls us for.
func TestReferences(t *testing.T) {
	t.Parallel()
	const group = "references.test"
	w := newWorld(t, controlplane.Options{})
	r := w.serve(t)
	w.resources(t, "Job jobs."+group+" Namespaced", "Queue queues."+group+" Namespaced", "Ingress ingresses."+group+" Namespaced",
		"IngressClass ingressclasses."+group+" Cluster", "Secret secrets."+group+" Namespaced", "Store stores."+group+" Namespaced",
		"ClusterStore clusterstores."+group+" Cluster", "Cluster clusters."+group+" Namespaced", "ClusterClass clusterclasses."+group+" Namespaced",
		"Instance instances."+group+" Namespaced")
	claimKinds := map[string]string{
		"jobs":      "{reference: {label: kueue.x-k8s.io/queue-name, form: Name}, whenUnmatched: BindLater}",
		"ingresses": "{reference: {path: .spec.ingressClassName, form: Name}, skipIfSet: [{annotation: kubernetes.io/ingress.class}]}",
		"secrets":   "{reference: {path: .spec.storeRef, form: KindReference, emptyIsUnset: true}}",
		"clusters":  "{reference: {path: .spec.topology.classRef, form: LocalObjectReference, whenParentAbsent: LeaveAlone}}",
		"instances": "{reference: {path: .spec.clusterId, form: Name}, classSelector: {annotation: example.org/cluster-selector}, whenNoSelector: LeaveAlone}",
	}
	manifest := lateVendor(group)
	for name, spec := range claimKinds {
		manifest += claimKind(name+"."+group, spec)
	}
	for name, claims := range map[string]string{
		"queues": "jobs", "ingressclasses": "ingresses", "stores": "secrets", "clusterstores": "secrets", "clusterclasses": "clusters." + group + ", instances",
	} {
		manifest += classKind(name+"."+group, fmt.Sprintf("{claimKinds: [%s.%s]}", claims, group))
	}
	manifest += class(group, "IngressClass", "usual", isDefault) +
		class(group, "Store", "own", "namespace: default, "+isDefault) + class(group, "ClusterStore", "shared", isDefault) +
		class(group, "ClusterClass", "quick-start", "namespace: default, "+isDefault)
	w.apply(t, manifest)
	for _, kind := range []string{"ingressclasses", "stores", "clusterstores", "clusterclasses"} {
		w.awaitClasses(t, kind+"."+group, 1)
	}
	for _, kind := range []string{"jobs", "ingresses", "secrets"} {
		w.awaitClaims(t, kind+"."+group)
	}
	of := func(kind, name, metadata, spec string) string {
		return fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: default, name: %s%s}\nspec: %s\n", group, kind, name, metadata, spec)
	}
	for _, probe := range []string{ // The API server does not call us for those of awaitClaims.
		of("Cluster", "probe", ", annotations: {classbind.io/class-selector: '='}", "{topology: {}}"),
		of("Instance", "probe", ", annotations: {example.org/cluster-selector: '='}", "{}"),
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, _, err := w.create(t, probe, client.DryRunAll)
			require.True(c, apierrors.IsInvalid(err), "%v", err)
		}, patience, 20*time.Millisecond)
	}
	shared := map[string]any{"kind": "ClusterStore", "name": "shared"}
	own := map[string]any{"kind": "Store", "name": "own"}

	for name, tc := range map[string]struct {
		reason   string
		manifest string
		calls    int
		at       []string
		want     any
	}{
		"LabelSet":        {"We should not be called for a job that names its queue.", of("Job", "labelled", ", labels: {kueue.x-k8s.io/queue-name: mine}", "{}"), 0, []string{"metadata", "labels", "kueue.x-k8s.io/queue-name"}, "mine"},
		"AnnotationSet":   {"We should leave alone an Ingress with the old annotation.", of("Ingress", "old", ", annotations: {kubernetes.io/ingress.class: nginx}", "{}"), 0, []string{"spec", "ingressClassName"}, nil},
		"AnnotationUnset": {"We should bind an Ingress without it.", of("Ingress", "new", ", annotations: {a: b}", "{}"), 1, []string{"spec", "ingressClassName"}, "usual"},
		"KindGiven":       {"We should give the default class of the kind that the author set, and keep the rest.", of("Secret", "given", "", "{storeRef: {kind: ClusterStore}}"), 1, []string{"spec", "storeRef"}, shared},
		"NameEmpty":       {"We should take the empty name of a typed client for none.", of("Secret", "empty", "", `{storeRef: {name: "", kind: ""}}`), 1, []string{"spec", "storeRef"}, own},
		"OtherFields": {
			"We should leave the other fields of the object.", of("Secret", "others", "", `{storeRef: {kind: Store, name: "", optional: true}}`), 1,
			[]string{"spec", "storeRef"},
			map[string]any{"kind": "Store", "name": "own", "optional": true},
		},
		"NameSet":         {"We should not be called for a claim with a name.", of("Secret", "named", "", "{storeRef: {name: mine}}"), 0, []string{"spec", "storeRef"}, map[string]any{"name": "mine"}},
		"ParentAbsent":    {"We should leave alone a Cluster without a topology.", of("Cluster", "plain", "", "{}"), 0, []string{"spec"}, map[string]any{}},
		"ParentThere":     {"We should bind a Cluster with a topology.", of("Cluster", "topology", "", "{topology: {version: v1}}"), 1, []string{"spec", "topology", "classRef"}, map[string]any{"name": "quick-start"}},
		"SelectorAbsent":  {"We should leave alone a claim without a selector.", of("Instance", "plain", ", annotations: {classbind.io/class-selector: a=b}", "{}"), 0, []string{"spec"}, map[string]any{}},
		"SelectorPresent": {"We should be called for a claim with a selector.", of("Instance", "selecting", ", annotations: {example.org/cluster-selector: a=b}", "{}"), 1, []string{"spec"}, map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			before := calls(t, r)
			stored, _, err := w.create(t, tc.manifest)
			require.NoError(t, err)
			assert.Equal(t, tc.calls, calls(t, r)-before, tc.reason)
			got, _, err := unstructured.NestedFieldNoCopy(stored.Object, tc.at...)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}

	t.Run("WrongType", func(t *testing.T) {
		_, _, err := w.create(t, of("Secret", "wrong", "", "{storeRef: {name: 5}}"))
		assert.ErrorContains(t, err, "spec.storeRef.name: Invalid value: 5: must be a string", "We should tell the author which field is wrong.")
	})
	t.Run("OtherKind", func(t *testing.T) {
		_, warned, err := w.create(t, of("Secret", "other", "", "{storeRef: {kind: Vault}}"))
		require.NoError(t, err)
		require.Len(t, warned, 1)
		assert.Contains(t, warned[0], "of another group, kind or namespace than the class reference of the claim says")
	})
	t.Run("LabelLater", func(t *testing.T) {
		job, warned, err := w.create(t, of("Job", "waits", ", labels: {a: b}", "{}"))
		require.NoError(t, err)
		require.Len(t, warned, 1)
		require.NotContains(t, job.GetLabels(), "kueue.x-k8s.io/queue-name")
		w.apply(t, class(group, "Queue", "default", "namespace: default, "+isDefault))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.NoError(c, w.Get(t.Context(), client.ObjectKeyFromObject(job), job))
			require.Equal(c, map[string]string{"a": "b", "kueue.x-k8s.io/queue-name": "default"}, job.GetLabels())
		}, patience, 50*time.Millisecond, "We should write the label of a job that waited.")
		w.awaitClasses(t, "queues."+group, 1)
		job, _, err = w.create(t, of("Job", "now", "", "{}"))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"kueue.x-k8s.io/queue-name": "default"}, job.GetLabels(), "We should write the label of a new job.")
	})
	k := &v1alpha1.ClaimKind{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "jobs." + group}, k))
	assert.True(t, meta.IsStatusConditionTrue(k.Status.Conditions, v1alpha1.ConditionLateBinding), "%v", k.Status.Conditions)
}
