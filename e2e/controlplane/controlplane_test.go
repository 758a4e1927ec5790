package controlplane

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
)

func TestControlPlane(t *testing.T) {
	ctx := t.Context()
	c, err := Start(ctx, Options{Progress: os.Stderr, Audit: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop(), "a second Stop does nothing") })

	out, _, err := c.Kubectl(ctx, nil, "version", "--output=json")
	require.NoError(t, err)
	var versions struct{ ClientVersion, ServerVersion version.Info }
	require.NoError(t, json.Unmarshal([]byte(out), &versions))
	assert.Equal(t, versions.ClientVersion.GitVersion, versions.ServerVersion.GitVersion)
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		want, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
		require.NoError(t, err)
		assert.Equal(t, strings.TrimSpace(string(want)), versions.ServerVersion.GitVersion, "what is built says what it is")
	}

	_, _, err = c.Kubectl(ctx, strings.NewReader(`{apiVersion: v1, kind: Namespace, metadata: {name: audited}}`), "apply", "-f", "-")
	require.NoError(t, err, "the admin may do anything")
	log, err := os.ReadFile(c.AuditLog)
	require.NoError(t, err)
	var created bool
	for line := range bytes.Lines(log) {
		var event struct {
			Stage, Verb string
			ObjectRef   struct{ Resource, Name string }
		}
		require.NoError(t, json.Unmarshal(line, &event))
		assert.NotEqual(t, "RequestReceived", event.Stage)
		created = created || event.Verb == "create" && event.ObjectRef.Resource == "namespaces" && event.ObjectRef.Name == "audited"
	}
	assert.True(t, created, "the audit log has every request, once it is answered")

	kubeconfig, err := c.UserKubeconfig("system:serviceaccount:classbind-system:classbind")
	require.NoError(t, err)
	assert.NotContains(t, kubeconfig, ":", "a list separator in $KUBECONFIG")
	_, stderr, err := c.Kubectl(ctx, nil, "--kubeconfig", kubeconfig, "get", "namespaces")
	require.ErrorContains(t, err, "Forbidden", "RBAC is on, and an error says what kubectl said")
	assert.Contains(t, stderr, `User "system:serviceaccount:classbind-system:classbind" cannot list resource "namespaces"`)

	clients, err := kubernetes.NewForConfig(c.Config)
	require.NoError(t, err)
	_, err = clients.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.NoError(t, c.Stop(), "a client's open watch does not hold it up")
	assert.NoDirExists(t, c.Dir)
}

func TestStartFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := Start(t.Context(), Options{Progress: os.Stderr, APIServerFlags: map[string]string{"no-such-flag": "1"}})
	require.ErrorContains(t, err, "unknown flag: --no-such-flag", "the API server's own reason")
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
