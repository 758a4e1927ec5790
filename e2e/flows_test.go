package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestFlows has the API server say in which flow it puts what classbind asks, and
// whom it lets use classbind's PriorityClass.
func TestFlows(t *testing.T) {
	long(t)
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	uids := map[string]string{}
	for line := range strings.Lines(w.kubectl(t, "get", "flowschemas", "-o", `jsonpath={range .items[*]}{.metadata.uid} {.metadata.name}{"\n"}{end}`)) {
		uid, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		uids[uid] = name
	}
	account, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	require.NoError(t, err)
	flow := func(method, path, body string) string {
		t.Helper()
		httpClient, err := rest.HTTPClientFor(account)
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), method, account.Host+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		response, err := httpClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return uids[response.Header.Get("X-Kubernetes-PF-FlowSchema-UID")]
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/classbind-system/leases"
	for name, tc := range map[string]struct {
		reason, method, path, body string
		want                       string
	}{
		"Lease":         {"We should keep the Leases of default classes apart from lists.", http.MethodGet, leases + "/a", "", "classbind"},
		"LeaseWritten":  {"We should keep the leader's Lease apart from lists.", http.MethodPost, leases, `{"metadata":{"name":"a"}}`, "classbind"},
		"Class":         {"We should keep the guard's look at one class apart from lists.", http.MethodGet, "/apis/example.org/v1/classes/a", "", "classbind"},
		"Registrations": {"We should keep registrations apart from lists of classes.", http.MethodGet, "/apis/classbind.io/v1alpha1/claimkinds", "", "classbind"},
		"Classes":       {"We should count a list of classes among what authors of claims cause.", http.MethodGet, "/apis/example.org/v1/classes", "", "classbind-others"},
		"OtherLeases":   {"We should give no Lease of others a better level.", http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/default/leases", "{}", "classbind-others"},
		"Token":         {"We should count tokens that strangers make up among what others cause.", http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"a"}}`, "classbind-others"},
	} {
		t.Run(name, func(t *testing.T) {
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				require.Equal(c, tc.want, flow(tc.method, tc.path, tc.body))
			}, patience, 50*time.Millisecond, tc.reason)
		})
	}

	pod := func(namespace string) error {
		return w.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "important-"},
			Spec: corev1.PodSpec{
				PriorityClassName: "classbind", SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{
					Name: "a", Image: "a",
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				}},
			},
		}, client.DryRunAll)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // The API server takes a moment to see a policy.
		require.ErrorContains(c, pod("default"), `the PriorityClass "classbind" is for pods of the namespace "classbind-system" alone`)
	}, patience, 50*time.Millisecond, "We should have nobody else's pod evict others by our PriorityClass.")
	require.NoError(t, pod(classbind.Namespace), "We should have it for our own.")
}
