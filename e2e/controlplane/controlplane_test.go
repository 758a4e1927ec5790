package controlplane

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
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

func TestSeveralAPIServers(t *testing.T) {
	ctx := t.Context()
	c, err := Start(ctx, Options{Progress: os.Stderr, APIServers: 2, ConnectionPerWebhookCall: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	require.Len(t, c.Configs, 2)
	require.NotEqual(t, c.Configs[0].Host, c.Configs[1].Host)
	first, err := kubernetes.NewForConfig(c.Configs[0])
	require.NoError(t, err)
	second, err := kubernetes.NewForConfig(c.Configs[1])
	require.NoError(t, err)

	written, err := first.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	read, err := second.CoreV1().Namespaces().Get(ctx, "shared", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, written.UID, read.UID, "one has what was written through the other")

	kubeconfigs, err := c.UserKubeconfigs("anybody")
	require.NoError(t, err)
	require.Len(t, kubeconfigs, 2)
	for i, kubeconfig := range kubeconfigs {
		out, _, err := c.Kubectl(ctx, nil, "--kubeconfig", kubeconfig, "config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
		require.NoError(t, err)
		assert.Equal(t, c.Configs[i].Host, out+"/", "each kubeconfig is for its API server")
		out, _, err = c.Kubectl(ctx, nil, "--kubeconfig", kubeconfig, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		require.NoError(t, err)
		assert.Equal(t, "anybody", out, "a user of one API server is one of the other")
	}
	require.NoError(t, c.Stop())
	for _, config := range c.Configs {
		_, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(config.Host, "https://"), "/"))
		require.Error(t, err, "both are stopped")
	}
}

func TestStartFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := Start(t.Context(), Options{Progress: os.Stderr, APIServerFlags: map[string]string{"no-such-flag": "1"}})
	require.ErrorContains(t, err, "unknown flag: --no-such-flag", "the API server's own reason")
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
