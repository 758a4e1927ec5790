package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/controlplane"
)

// useAuthorizer answers the API server, after RBAC, for the namespaces of TestUseAuthorizer.
func useAuthorizer(w http.ResponseWriter, r *http.Request) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	namespace := ""
	for _, g := range review.Spec.Groups {
		_, _ = fmt.Sscanf(g, "system:serviceaccounts:%s", &namespace)
	}
	if a := review.Spec.ResourceAttributes; a != nil && a.Verb == "use" {
		switch namespace {
		case "hangs":
			<-r.Context().Done()
			return
		case "fails":
			http.Error(w, "no answer", http.StatusBadRequest)
			return
		case "denied":
			review.Status.Denied = a.Name == "class-1"
		case "allowed":
			review.Status.Allowed = a.Name == "class-5"
		}
	}
	_ = json.NewEncoder(w).Encode(review)
}

// TestUseAuthorizer has another authorizer beside RBAC, which hangs, fails, denies or allows.
func TestUseAuthorizer(t *testing.T) {
	long(t)
	t.Parallel()
	const group = "authorizer.use.test"
	server := httptest.NewTLSServer(http.HandlerFunc(useAuthorizer))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	config := filepath.Join(t.TempDir(), "authorizer.kubeconfig")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n"+
		"clusters: [{name: a, cluster: {server: %q, insecure-skip-tls-verify: true}}]\n", server.URL), 0o600))
	w := newWorld(t, controlplane.Options{APIServerFlags: map[string]string{
		"authorization-mode": "RBAC,Webhook", "authorization-webhook-config-file": config, "authorization-webhook-version": "v1",
	}})
	w.serve(t)
	var classes []string
	for i := range 8 {
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), ""))
	}
	w.register(t, group, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}}}", classes...)
	manifest := followsRoles
	for _, namespace := range []string{"hangs", "fails", "denied", "allowed", "roles"} {
		w.kubectl(t, "create", "namespace", namespace)
		if namespace != "allowed" && namespace != "roles" {
			continue
		}
		manifest += namespaceMayUse(group, namespace, "class-1")
	}
	w.apply(t, manifest)
	w.awaitBound(t, claimIn(group, "roles", "probe"), "Class/class-1", "We should see the roles followed.")

	var hanging []chan error
	for i := range 20 {
		ended := make(chan error, 1)
		hanging = append(hanging, ended)
		go func() {
			claim := object(group, "Claim", fmt.Sprint("claim-", i))
			claim.SetNamespace("hangs")
			claim.Object["spec"] = map[string]any{"classSelector": map[string]any{}}
			err := w.client(t).Create(t.Context(), claim)
			assert.Empty(t, classOf(claim), "We should give no class that we did not ask about.")
			ended <- err
		}()
	}
	for i := range 50 {
		w.binds(t, claimIn(group, "roles", fmt.Sprint("claim-", i)), "Class/class-1", "We should go on with other namespaces.")
	}
	said := w.refuses(t, claimIn(group, "fails", "claim"), "cannot tell which classes are not allowed", "We should give no class where an authorizer fails.")
	assert.NotContains(t, said, "class-", "We should name none.")
	claim, warnings := w.warned(t, claimIn(group, "denied", "claim"))
	assert.Empty(t, classOf(claim), "We should give no class that is denied.")
	require.Len(t, warnings, 1)
	w.awaitBound(t, claimIn(group, "allowed", "claim"), "Class/class-1", "We should prefer what a role allows, once it is known.")
	w.kubectl(t, "delete", "clusterrolebinding", group+".allowed")
	w.awaitBound(t, claimIn(group, "allowed", "other"), "Class/class-5", "We should honour another authorizer.")
	for _, ended := range hanging {
		err := <-ended
		require.ErrorContains(t, err, "cannot tell which classes are not allowed", "We should answer before the API server gives up.")
		assert.NotContains(t, err.Error(), "class-", "We should name none.")
	}
}

func (w *world) client(t *testing.T) client.Client {
	c, err := newClient(w.config)
	assert.NoError(t, err)
	return c
}
