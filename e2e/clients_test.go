package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/clientcert"
	"github.com/classbind/classbind/e2e/controlplane"
)

const clientsKinds = "clients.test"

func (w *world) reviewWith(t *testing.T, r *replica, certificate *tls.Certificate) (int, string, error) {
	review := must(w.review("claims.clients.test"))(t)
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // It is the client that is verified.
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	return exchange(t.Context(), stranger, http.MethodPost, r.URL+v1beta1.BindPath+"claims.clients.test", "application/json", string(review))
}

// TestClients has a replica that answers the API server and no one else.
func TestClients(t *testing.T) {
	w, _ := sharedReplica(t)
	r := sharing.replica
	unknown := func() int { return strings.Count(r.log.String(), "client didn't provide a certificate") }
	w.register(t, clientsKinds, "{}", class(clientsKinds, "Class", "only", ""))
	w.binds(t, claim(clientsKinds, "known"), "Class/only", "We should answer the API server.")

	before := unknown()
	_, _, err := w.reviewWith(t, r, nil)
	require.Error(t, err, "We should not answer who has no certificate.")
	stranger := must(w.plane.Clients.Issue("system:node:a"))(t)
	status, text, err := w.reviewWith(t, r, &stranger)
	require.NoError(t, err)
	assert.Equal(t, http.StatusForbidden, status, "We should not answer another client of the same CA.")
	assert.NotContains(t, text, "only", "We should reveal nothing to it.")
	elsewhere := must(clientcert.Write(t.TempDir(), "", "*"))(t)
	impostor := must(elsewhere.Certificate())(t)
	_, _, err = w.reviewWith(t, r, &impostor)
	require.Error(t, err, "We should not answer who has the name from another CA.")
	own := must(w.plane.Clients.Certificate())(t)
	status, text, err = w.reviewWith(t, r, &own)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status, text)
	assert.Equal(t, 1, unknown()-before, "We should log who had no certificate, and not our own looks at ourselves.")
}

// TestClientsRecipe follows docs/install.md, on a control plane that has nothing of it.
func TestClientsRecipe(t *testing.T) {
	long(t)
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("It needs openssl, as the page does.")
	}
	const folder, service = "/etc/kubernetes/classbind", "classbind.classbind-system.svc"
	script, give := clientsRecipe(t, folder)

	dir := t.TempDir()
	//nolint:gosec // The script is in our documents.
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(script, folder, dir)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	kubeconfig := filepath.Join(dir, "webhooks.kubeconfig")
	resolver := must(webhook.NewDefaultAuthenticationInfoResolver(kubeconfig))(t)
	account := must(resolver.ClientConfigForService("classbind", classbind.Namespace, 443))(t)
	assert.Equal(t, filepath.Join(dir, "client.crt"), account.CertFile, "We should name the Service as the API server does.")

	// Here, it is a process of the host, at a URL.
	written, err := os.ReadFile(kubeconfig) //nolint:gosec // The folder is the test's own.
	require.NoError(t, err)
	require.Contains(t, string(written), service)
	require.NoError(t, os.WriteFile(kubeconfig, bytes.ReplaceAll(written, []byte(service), []byte(`"*"`)), 0o600)) //nolint:gosec // The folder is the test's own.
	w := newWorld(t, controlplane.Options{APIServerFlags: map[string]string{"admission-control-config-file": filepath.Join(dir, "admission.yaml")}})
	w.kubectl(t, strings.Fields(strings.ReplaceAll(give, folder, dir))[1:]...)
	mounted := filepath.Join(dir, "mounted.crt")
	text := w.kubectl(t, "--namespace", classbind.Namespace, "get", "configmap", "classbind-clients", "--output", `jsonpath={.data.ca\.crt}`)
	require.NoError(t, os.WriteFile(mounted, []byte(text), 0o600))
	w.anybody = true // The flags are ours.
	w.serve(t, "--client-ca-file="+mounted, "--client-name=kube-apiserver")
	w.register(t, clientsKinds, "{}", class(clientsKinds, "Class", "only", ""))
	w.binds(t, claim(clientsKinds, "recipe"), "Class/only", "")
}

// clientsRecipe is what docs/install.md has the admin run: a script that makes the certificates,
// and the command that gives classbind the CA.
func clientsRecipe(t *testing.T, folder string) (script, give string) {
	const page = "docs/install.md"
	blocks := documented(t, page)
	require.Len(t, blocks, 2, "We should run all of it.")
	text := must(os.ReadFile("../" + page))(t)
	require.Contains(t, string(text), "--admission-control-config-file="+folder+"/admission.yaml")
	require.Len(t, blocks[1].lines, 1)
	require.True(t, strings.HasPrefix(blocks[1].lines[0], "kubectl "), blocks[1].lines[0])
	return strings.Join(blocks[0].lines, "\n"), blocks[1].lines[0]
}

// TestMetricsSecure has a replica serve its metrics as deploy/ has it.
func TestMetricsSecure(t *testing.T) {
	w, _ := sharedReplica(t)
	r := w.serve(t, "--metrics-secure") // Since the other leads, this one does not.
	url := strings.Replace(r.MetricsURL, "http:", "https:", 1)

	secret := &corev1.Secret{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: v1beta1.CASecret}, secret))
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(secret.Data["ca.crt"]), "We should have the CA where the ServiceMonitor looks for it.")
	prometheus := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}}}
	clientset := must(kubernetes.NewForConfig(w.config))(t)
	token := func(name string) string {
		require.NoError(t, client.IgnoreAlreadyExists(w.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})))
		request := must(clientset.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
		return request.Status.Token
	}
	get := func(token string) (int, string) {
		request := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := prometheus.Do(request)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		body := must(io.ReadAll(response.Body))(t)
		return response.StatusCode, string(body)
	}

	status, _ := get("")
	assert.Equal(t, http.StatusUnauthorized, status, "We should reveal nothing to an anonymous client.")
	status, _ = get("made-up")
	assert.Equal(t, http.StatusUnauthorized, status, "We should reveal nothing to a client with a made-up token.")
	scraper := token("scraper")
	status, text := get(scraper)
	assert.Equal(t, http.StatusForbidden, status, "We should reveal nothing to a client that may not read metrics.")
	assert.Contains(t, text, "classbind-metrics-reader", "We should say what helps.")
	w.kubectl(t, "create", "clusterrolebinding", "scraper", "--clusterrole=classbind-metrics-reader", "--serviceaccount=default:scraper")
	eventually(t, func(c *attempt) {
		status, text := get(scraper)
		require.Equal(c, http.StatusOK, status)
		require.Contains(c, text, "classbind_certificate_expiry_timestamp_seconds")
	}, "We should let in who may.")
	response, err := prometheus.Get(r.MetricsURL)
	if err == nil {
		_ = response.Body.Close()
	}
	assert.True(t, err != nil || response.StatusCode == http.StatusBadRequest, "We should not serve them over HTTP too.")
}

func docFile(t *testing.T, page, name string) string {
	root, _ := docRoot(t)
	_, text, found := strings.Cut(readText(t, filepath.Join(root, page)), "\n# file: "+name+"\n")
	require.True(t, found, "We should find the file %s in %s.", name, page)
	text, _, _ = strings.Cut(text, "\n```")
	return text
}

// TestStaticPolicy has an API server with the files of docs/security.md, which keep cluster admins from turning classbind off.
func TestStaticPolicy(t *testing.T) {
	t.Parallel()
	notInPods(t, "It needs an API server of its own.")
	const page = "docs/security.md"
	dir := t.TempDir()
	manifests, config := filepath.Join(dir, "admission"), filepath.Join(dir, "config.yaml")
	require.NoError(t, os.Mkdir(manifests, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "classbind.yaml"), []byte(docFile(t, page, "admission/classbind.yaml")), 0o600))
	text := strings.Replace(docFile(t, page, "admission-control.yaml"), "/etc/kubernetes/admission", manifests, 1)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	w := newWorld(t, controlplane.Options{APIServerFlags: map[string]string{"admission-control-config-file": config}})
	w.resources(t, "Claim claims.static.test Namespaced", "Class classes.static.test Cluster")
	w.serve(t)
	w.apply(t, vendor("static.test")+claimKind("claims.static.test", "{classes: {use: {subject: Namespace}}}")+
		serving("classes.static.test", "claims.static.test"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims.static.test", v1beta1.ConditionReady, "True", "") // The leader fills what it owns.
	policy := "validatingadmissionpolicy/claims.static.test.use.classbind.io"
	w.kubectl(t, "wait", "--for=create", policy, "--timeout=5m")

	admin, member := []string{"--as=jane", "--as-group=system:masters"}, []string{"--as=joe", "--as-group=system:masters", "--as-group=classbind-admins"}
	for name, args := range map[string][]string{
		"Delete":     {"delete", "mutatingwebhookconfiguration", "zz-classbind"},
		"DeleteAll":  {"delete", "validatingwebhookconfigurations", "--all"},
		"Empty":      {"patch", "mutatingwebhookconfiguration", "zz-classbind", "--type=json", `--patch=[{"op": "remove", "path": "/webhooks"}]`},
		"Policy":     {"delete", policy},
		"Collection": {"delete", "--raw=/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"},
	} {
		t.Run(name, func(t *testing.T) {
			out, stderr, err := w.Kubectl(t.Context(), nil, append(args, admin...)...)
			require.Error(t, err, "%s", out)
			assert.Contains(t, stderr, "only classbind and the group classbind-admins may change what makes the API server call classbind")
		})
	}
	w.kubectl(t, append([]string{"annotate", "mutatingwebhookconfiguration", "zz-classbind", "a=b"}, member...)...)
}
