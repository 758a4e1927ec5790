package connect

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/classbind/classbind/cmd/classbind/world"
)

// TestNoAnswer has an API server that accepts requests, and never answers.
func TestNoAnswer(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(func() { close(ended); server.Close() })
	f, c := Flags{}, &cobra.Command{}
	f.Add(c)
	f.kubeconfig = filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(f.kubeconfig, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"clusters: [{name: a, cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\n", server.URL), 0o600))
	config, err := f.Config(io.Discard, "")
	require.NoError(t, err)
	assert.Equal(t, 30*time.Second, config.Timeout, "We should end a request.")

	config.Timeout = 20 * time.Millisecond
	_, err = world.OfCluster(t.Context(), config, "classbind-system", "")
	require.ErrorContains(t, err, "cannot list ClaimKinds", "We should say what we cannot read.")
	require.ErrorContains(t, err, "exceeded", "We should say why.")
}

func TestWithoutACluster(t *testing.T) {
	dir := t.TempDir()
	absent, config, empty := filepath.Join(dir, "absent"), filepath.Join(dir, "config"), filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, []byte("apiVersion: v1\nkind: Config\n"), 0o600))
	require.NoError(t, os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: "+
		"https://localhost:1}}]\ncontexts: [{name: a, context: {cluster: a}}]\n"), 0o600))
	for name, tc := range map[string]struct {
		reason string
		env    string
		flags  Flags
		want   string
	}{
		"Flag":        {"We should name the file of --kubeconfig that does not exist.", "", Flags{kubeconfig: absent}, absent},
		"Environment": {"We should name the file of $KUBECONFIG that does not exist.", absent, Flags{}, absent},
		"Context":     {"We should name the context that does not exist.", config, Flags{overrides: clientcmd.ConfigOverrides{CurrentContext: "lost"}}, `"lost"`},
		"Empty":       {"We should say that the kubeconfig names no cluster.", empty, Flags{}, "no kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			t.Setenv("HOME", dir)
			_, err := tc.flags.Config(io.Discard, ", or ask nobody")
			require.ErrorContains(t, err, "cannot find a cluster: ", "We should say what we cannot do.")
			assert.Contains(t, err.Error(), tc.want, tc.reason)
			assert.Contains(t, err.Error(), "name a file with --kubeconfig or $KUBECONFIG", "We should say how to mend it.")
			assert.Contains(t, err.Error(), ", or ask nobody", "We should say what else works.")
		})
	}
}

// TestOverride has what client-go does not take from the flags in a pod.
func TestOverride(t *testing.T) {
	as := rest.ImpersonationConfig{UserName: "jane", UID: "1", Groups: []string{"team"}}
	for name, tc := range map[string]struct {
		reason string
		args   []string
		config rest.Config
		want   rest.Config
		err    string
	}{
		"Nothing": {
			reason: "We should end a request, as without a pod.",
			want:   rest.Config{Timeout: 30 * time.Second},
		},
		"All": {
			reason: "We should ask as the user of the flags, not as the pod.",
			args:   []string{"--as=jane", "--as-uid=1", "--as-group=team", "--request-timeout=2s"},
			want:   rest.Config{Timeout: 2 * time.Second, Impersonate: as},
		},
		"Kubeconfig": {
			reason: "We should keep the user that a kubeconfig names.",
			args:   []string{"--request-timeout=0"},
			config: rest.Config{Impersonate: as},
			want:   rest.Config{Impersonate: as},
		},
		"Group": {
			reason: "We should not ask as the pod.",
			args:   []string{"--as-group=team"},
			err:    "need --as",
		},
		"Timeout": {
			reason: "We should name the flag.",
			args:   []string{"--request-timeout=soon"},
			err:    "--request-timeout: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := Flags{}, &cobra.Command{}
			f.Add(c)
			require.NoError(t, c.ParseFlags(tc.args))
			err := f.override(&tc.config)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, tc.config, tc.reason)
		})
	}
}
