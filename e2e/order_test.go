package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1alpha1"
)

// TestOrder has webhooks of others beside ours, which come before or after it.
func TestOrder(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	if w.plane == nil {
		t.Skip("The API server of a cluster does not reach the stand-ins, which are on this host.")
	}

	t.Run("Last", func(t *testing.T) {
		t.Parallel()
		const group, kind = "last.test", "claims.last.test"
		w.resources(t, "Claim "+kind+" Namespaced", "Class classes.last.test Cluster")
		w.apply(t, vendor(group)+claimKind(kind, "{}")+classKind("classes.last.test", "{claimKinds: ["+kind+"]}")+
			class(group, "Class", "public", "labels: {exposure: public}, annotations: {"+defaultMark+`: "true"}, `)+
			class(group, "Class", "internal", "labels: {exposure: internal}, "))
		w.awaitClaims(t, kind)
		w.awaitClasses(t, "classes.last.test", 2)
		w.standIn(t, "kyverno-resource-mutating-webhook-cfg", kind, func(claim *unstructured.Unstructured) *admissionv1.AdmissionResponse {
			if _, has, _ := unstructured.NestedMap(claim.Object, "spec"); !has {
				return patched("[]") // It is the probe.
			}
			return patched(`[{"op": "add", "path": "/spec/classSelector", "value": {"matchLabels": {"exposure": "internal"}}}]`)
		})
		bound, _, err := w.create(t, "apiVersion: last.test/v1\nkind: Claim\nmetadata: {namespace: default, name: exposed}\nspec: {size: 1}\n")
		require.NoError(t, err)
		exposure, _, _ := unstructured.NestedString(bound.Object, "spec", "classSelector", "matchLabels", "exposure")
		require.Equal(t, "internal", exposure, "We should see the other webhook add a selector.")
		assert.Equal(t, "Class/internal", classOf(bound), "We should heed what other webhooks want of a claim.")
	})

	t.Run("First", func(t *testing.T) {
		t.Parallel()
		const group, kind = "first.test", "clusters.first.test"
		spec := func(order string) string {
			return claimKind(kind, "{reference: {path: .spec.topology.classRef, form: LocalObjectReference}, order: "+order+"}")
		}
		w.resources(t, "Cluster "+kind+" Namespaced", "Class classes.first.test Cluster")
		w.apply(t, vendor(group)+spec("Last")+classKind("classes.first.test", "{claimKinds: ["+kind+"]}")+
			class(group, "Class", "quick-start", "annotations: {"+defaultMark+`: "true"}, `))
		w.awaitClaims(t, kind)
		w.awaitClasses(t, "classes.first.test", 1)
		w.standIn(t, "capi-mutating-webhook-configuration", kind, clusterAPI)
		cluster := func(name string) (*unstructured.Unstructured, error) {
			created, _, err := w.create(t, fmt.Sprintf("apiVersion: first.test/v1\nkind: Cluster\nmetadata: {namespace: default, name: %s}\nspec: {topology: {version: 1.36.3}}\n", name))
			return created, err
		}
		_, err := cluster("last")
		require.True(t, apierrors.IsInvalid(err), "We should see the webhook of Cluster API refuse a cluster without a class: %v", err)
		require.ErrorContains(t, err, "classRef.name cannot be empty")

		w.apply(t, spec("First"))
		w.awaitOrder(t, kind, v1alpha1.OrderFirst)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			bound, err := cluster("first")
			require.NoError(c, client.IgnoreAlreadyExists(err))
			name, _, _ := unstructured.NestedString(bound.Object, "spec", "topology", "classRef", "name")
			assert.Equal(t, "quick-start", name, "We should be asked first.")
			version, _, _ := unstructured.NestedString(bound.Object, "spec", "topology", "version")
			assert.Equal(t, "v1.36.3", version, "We should see Cluster API's webhook called after us.")
		}, patience, 50*time.Millisecond)
	})

	t.Run("Changes", func(t *testing.T) {
		t.Parallel()
		const group, kind = "reorder.test", "claims.reorder.test"
		spec := func(order v1alpha1.Order) string { return claimKind(kind, "{order: "+string(order)+"}") }
		w.resources(t, "Claim "+kind+" Namespaced", "Class classes.reorder.test Cluster")
		w.apply(t, vendor(group)+spec(v1alpha1.OrderLast)+classKind("classes.reorder.test", "{claimKinds: ["+kind+"]}")+class(group, "Class", "only", ""))
		w.awaitClaims(t, kind)
		w.awaitClasses(t, "classes.reorder.test", 1)
		changed, stopped := make(chan struct{}), make(chan int)
		template := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(claim(group, "any")), &template.Object))
		go func() {
			created := 0
			defer func() { stopped <- created }()
			for ; ; created++ {
				bound := template.DeepCopy()
				err := w.Create(t.Context(), bound, client.DryRunAll)
				if !assert.NoError(t, err) || !assert.Equal(t, "Class/only", classOf(bound), "We should bind claims while the order changes.") {
					return
				}
				select {
				case <-changed:
					return
				default:
				}
			}
		}()
		for i := range 6 {
			order := []v1alpha1.Order{v1alpha1.OrderFirst, v1alpha1.OrderLast}[i%2]
			w.apply(t, spec(order))
			w.awaitOrder(t, kind, order)
		}
		close(changed)
		t.Logf("%d claims were created meanwhile.", <-stopped)
	})
}

// awaitOrder waits until the entry of a claim kind is in the configuration of its order, and
// no more in the other.
func (w *world) awaitOrder(t *testing.T, claimKind string, order v1alpha1.Order) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, name := range []string{v1alpha1.FirstConfiguration, v1alpha1.LastConfiguration} {
			configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
			require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: name}, configuration))
			isHere := slices.ContainsFunc(configuration.Webhooks, func(e admissionregistrationv1.MutatingWebhook) bool {
				return e.Name == claimKind+v1alpha1.BindSuffix
			})
			require.Equal(c, name == order.Configuration(), isHere, "%s", name)
		}
	}, patience, 20*time.Millisecond, "We should have one entry, in the configuration of its order.")
}
