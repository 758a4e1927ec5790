package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestMetricsSecure has a replica serve its metrics as deploy/ has it.
func TestMetricsSecure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	r := w.serve(t, "--metrics-secure")
	url := strings.Replace(r.MetricsURL, "http:", "https:", 1)

	secret := &corev1.Secret{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: v1alpha1.CASecret}, secret))
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(secret.Data["ca.crt"]), "We should have the CA where the ServiceMonitor looks for it.")
	prometheus := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}}}
	clientset, err := kubernetes.NewForConfig(w.config)
	require.NoError(t, err)
	token := func(name string) string {
		t.Helper()
		require.NoError(t, client.IgnoreAlreadyExists(w.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})))
		request, err := clientset.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		return request.Status.Token
	}
	get := func(token string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := prometheus.Do(request)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}

	status, _ := get("")
	assert.Equal(t, http.StatusUnauthorized, status, "We should tell nothing to who does not say who it is.")
	status, _ = get("made-up")
	assert.Equal(t, http.StatusUnauthorized, status, "We should tell nothing to who makes a token up.")
	scraper := token("scraper")
	status, text := get(scraper)
	assert.Equal(t, http.StatusForbidden, status, "We should tell nothing to who may not read metrics.")
	assert.Contains(t, text, "classbind-metrics-reader", "We should say what helps.")
	w.kubectl(t, "create", "clusterrolebinding", "scraper", "--clusterrole=classbind-metrics-reader", "--serviceaccount=default:scraper")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, text := get(scraper)
		require.Equal(c, http.StatusOK, status)
		require.Contains(c, text, "classbind_certificate_expiry_timestamp_seconds")
	}, patience, 50*time.Millisecond, "We should let in who may.")
	response, err := prometheus.Get(r.MetricsURL)
	if err == nil {
		_ = response.Body.Close()
	}
	assert.True(t, err != nil || response.StatusCode == http.StatusBadRequest, "We should not serve them over HTTP too.")
}
