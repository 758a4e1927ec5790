package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reviewer answers reviews as the webhook of another program.
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

// standIn stands in for the mutating webhook of another program, which the API server calls
// for new and changed objects of a resource, <plural>.<group>, when it is the turn of the
// configuration with the name. It is gone when the test ends.
func (w *world) standIn(t *testing.T, configuration, resource string, answer func(claim *unstructured.Unstructured) *admissionv1.AdmissionResponse) {
	t.Helper()
	var asked atomic.Bool
	server := httptest.NewTLSServer(reviewer(func(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		asked.Store(true)
		claim := &unstructured.Unstructured{}
		if err := json.Unmarshal(r.Object.Raw, &claim.Object); err != nil {
			return refused(apierrors.NewBadRequest(err.Error()))
		}
		return answer(claim)
	}))
	t.Cleanup(server.Close)
	plural, group, _ := strings.Cut(resource, ".")
	object := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: resource + ".standin.test", AdmissionReviewVersions: []string{"v1"},
			SideEffects:  new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: caOf(server)},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{plural}},
			}},
		}},
	}
	require.NoError(t, w.Create(t.Context(), object))
	t.Cleanup(func() {
		assert.NoError(t, w.Delete(context.Background(), object))
	})
	mapping, err := w.RESTMapper().KindFor(schema.ParseGroupResource(resource).WithVersion(""))
	require.NoError(t, err)
	probe := &unstructured.Unstructured{}
	probe.SetGroupVersionKind(mapping)
	probe.SetNamespace("default")
	probe.SetGenerateName("probe-")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_ = w.Create(t.Context(), probe.DeepCopy(), client.DryRunAll) // It may be refused, afterwards.
		require.True(c, asked.Load())
	}, patience, 20*time.Millisecond, "We should see the API server call the stand-in.")
}

// caOf a server is its certificate in PEM, as a caBundle has it.
func caOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// refused by a webhook.
func refused(why *apierrors.StatusError) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: new(why.Status())}
}

// patched by a webhook, with a JSON Patch.
func patched(patch string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch), Patch: []byte(patch)}
}

// clusterAPI answers as the webhook of Cluster API for Clusters does
// (core/webhooks/admission/cluster.go): it adds the v of the version of a topology, and
// refuses a topology without a class. Its configuration is called
// capi-mutating-webhook-configuration.
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
