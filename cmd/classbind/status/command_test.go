package status

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/cmd/classbind/exit"
)

func TestStatusRefuses(t *testing.T) {
	dir := t.TempDir()
	nowhere := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(nowhere, []byte("apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: https://localhost:1}}]\ncontexts: [{name: a, context: {cluster: a}}]\n"), 0o600))
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Argument":   {"We should not ignore an argument.", []string{"postgresqlinstances"}, `status takes no arguments; there are ["postgresqlinstances"]`},
		"Output":     {"We should not guess a format.", []string{"-o", "wide"}, `--output="wide": must be table, json or yaml`},
		"Namespace":  {"We should refuse what is no namespace.", []string{"--classbind-namespace=a/b"}, `--classbind-namespace="a/b": `},
		"Flag":       {"We should refuse an unknown flag.", []string{"--nonsense"}, "unknown flag"},
		"Kubeconfig": {"We should name the file that does not exist.", []string{"--kubeconfig", filepath.Join(dir, "absent")}, "cannot find a cluster: "},
		"NoAnswer":   {"We should say what we cannot read.", []string{"--kubeconfig", nowhere}, "cannot list ClaimKinds: "},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			c := NewCommand()
			c.SilenceErrors, c.SilenceUsage = true, true // Like the root command.
			c.SetArgs(tc.args)
			c.SetOut(&out)
			c.SetErr(&out)
			err := c.ExecuteContext(t.Context())
			require.ErrorContains(t, err, tc.want, tc.reason)
			assert.Equal(t, exit.Failed, statusOf(err), tc.reason)
			assert.Empty(t, out.String(), "We should leave it to main to print the error.")
		})
	}
}
