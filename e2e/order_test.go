package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
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
		w.register(t, group, "{}", class(group, "Class", "public", "labels: {exposure: public}, "+isDefault), class(group, "Class", "internal", "labels: {exposure: internal}, "))
		w.standIn(t, "kyverno-resource-mutating-webhook-cfg", kind, func(claim *unstructured.Unstructured) *admissionv1.AdmissionResponse {
			if _, has, _ := unstructured.NestedMap(claim.Object, "spec"); !has {
				return patched("[]") // It is the probe.
			}
			return patched(`[{"op": "add", "path": "/spec/classSelector", "value": {"matchLabels": {"exposure": "internal"}}}]`)
		})
		bound := w.created(t, "apiVersion: last.test/v1\nkind: Claim\nmetadata: {namespace: default, name: exposed}\nspec: {size: 1}\n")
		exposure, _, _ := unstructured.NestedString(bound.Object, "spec", "classSelector", "matchLabels", "exposure")
		require.Equal(t, "internal", exposure, "We should see the other webhook add a selector.")
		assert.Equal(t, "Class/internal", classOf(bound), "We should heed what other webhooks want of a claim.")
	})

	t.Run("First", func(t *testing.T) {
		t.Parallel()
		const group, kind = "first.test", "clusters.first.test"
		spec := func(order string) string {
			return claimKind(kind, "{reference: {path: .spec.topology.classRef, form: LocalObjectReference}, admission: {order: "+order+"}}")
		}
		w.resources(t, "Cluster "+kind+" Namespaced", "Class classes.first.test Cluster")
		w.apply(t, vendor(group)+spec("Last")+classKind("classes.first.test", "{claimKinds: [{name: "+kind+"}]}")+
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
		w.awaitOrder(t, kind, v1beta1.OrderFirst)
		eventually(t, func(c *attempt) {
			bound, err := cluster("first")
			require.NoError(c, client.IgnoreAlreadyExists(err))
			name, _, _ := unstructured.NestedString(bound.Object, "spec", "topology", "classRef", "name")
			assert.Equal(t, "quick-start", name, "We should be asked first.")
			version, _, _ := unstructured.NestedString(bound.Object, "spec", "topology", "version")
			assert.Equal(t, "v1.36.3", version, "We should see Cluster API's webhook called after us.")
		})
	})

	t.Run("Changes", func(t *testing.T) {
		t.Parallel()
		const group, kind = "reorder.test", "claims.reorder.test"
		spec := func(order v1beta1.Order) string { return claimKind(kind, "{admission: {order: "+string(order)+"}}") }
		w.register(t, group, "{admission: {order: Last}}", class(group, "Class", "only", ""))
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
			order := []v1beta1.Order{v1beta1.OrderFirst, v1beta1.OrderLast}[i%2]
			w.apply(t, spec(order))
			w.awaitOrder(t, kind, order)
		}
		close(changed)
		t.Logf("%d claims were created meanwhile.", <-stopped)
	})
}

// awaitOrder waits until the entry of a claim kind is in the configuration of its order, and no more in the other.
func (w *world) awaitOrder(t *testing.T, claimKind string, order v1beta1.Order) {
	eventually(t, func(c *attempt) {
		for _, name := range []string{v1beta1.FirstConfiguration, v1beta1.LastConfiguration} {
			configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
			require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: name}, configuration))
			isHere := slices.ContainsFunc(configuration.Webhooks, func(e admissionregistrationv1.MutatingWebhook) bool {
				return e.Name == claimKind+v1beta1.BindSuffix
			})
			require.Equal(c, name == order.Configuration(), isHere, "%s", name)
		}
	}, "We should have one entry, in the configuration of its order.")
}

type reviewer func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// ServeHTTP is called by the API server.
func (answer reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review := admissionv1.AdmissionReview{}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &review) != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	review.Response = answer(r, review.Request)
	review.Response.UID = review.Request.UID
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

// standIn stands in for the mutating webhook of another program, which the API server calls for new and changed objects of a resource,
// <plural>.<group>, when it is the turn of the configuration with the name. It is gone when the test ends.
func (w *world) standIn(t *testing.T, configuration, resource string, answer func(claim *unstructured.Unstructured) *admissionv1.AdmissionResponse) {
	var asked atomic.Bool
	plural, group, _ := strings.Cut(resource, ".")
	settings := fmt.Sprintf("rules: [{apiGroups: [%s], apiVersions: ['*'], resources: [%s], operations: [CREATE, UPDATE]}]", group, plural)
	w.askOfWrites(t, "MutatingWebhookConfiguration", configuration, settings, func(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		asked.Store(true)
		claim := &unstructured.Unstructured{}
		if err := json.Unmarshal(r.Object.Raw, &claim.Object); err != nil {
			return refused(apierrors.NewBadRequest(err.Error()))
		}
		return answer(claim)
	})
	mapping := must(w.RESTMapper().KindFor(schema.ParseGroupResource(resource).WithVersion("")))(t)
	probe := &unstructured.Unstructured{}
	probe.SetGroupVersionKind(mapping)
	probe.SetNamespace("default")
	probe.SetGenerateName("probe-")
	eventually(t, func(c *attempt) {
		_ = w.Create(t.Context(), probe.DeepCopy(), client.DryRunAll) // It may be refused, afterwards.
		require.True(c, asked.Load())
	}, "We should see the API server call the stand-in.")
}

// askOfWrites has the API server ask somebody else's webhook, until the test ends. The settings of the webhook are YAML.
func (w *world) askOfWrites(t *testing.T, kind, name, settings string, answer reviewer) {
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	w.apply(t, fmt.Sprintf(`---
apiVersion: admissionregistration.k8s.io/v1
kind: %[5]s
metadata: {name: %[1]s}
webhooks:
- name: %[1]s.standin.test
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: %[2]q, caBundle: %[3]s}
  %[4]s
`, name, server.URL, base64.StdEncoding.EncodeToString(caOf(server)), settings, kind))
	t.Cleanup(func() {
		_, _, err := w.Kubectl(context.Background(), nil, "delete", kind, name)
		assert.NoError(t, err)
	})
}

func caOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func refused(why *apierrors.StatusError) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: new(why.Status())}
}

func patched(patch string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch), Patch: []byte(patch)}
}

// clusterAPI answers as the webhook of Cluster API for Clusters does (core/webhooks/admission/cluster.go): it adds the v of the version of
// a topology, and refuses a topology without a class. Its configuration is called capi-mutating-webhook-configuration.
func clusterAPI(cluster *unstructured.Unstructured) *admissionv1.AdmissionResponse {
	topology, _, _ := unstructured.NestedMap(cluster.Object, "spec", "topology")
	if len(topology) == 0 {
		return patched("[]")
	}
	if name, _, _ := unstructured.NestedString(topology, "classRef", "name"); name == "" {
		at := field.NewPath("spec", "topology", "classRef", "name")
		return refused(apierrors.NewInvalid(cluster.GroupVersionKind().GroupKind(), cluster.GetName(),
			field.ErrorList{field.Required(at, "classRef.name cannot be empty")}))
	}
	version, _, _ := unstructured.NestedString(topology, "version")
	if strings.HasPrefix(version, "v") {
		return patched("[]")
	}
	return patched(fmt.Sprintf(`[{"op": "add", "path": "/spec/topology/version", "value": %q}]`, "v"+version))
}
