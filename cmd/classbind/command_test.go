package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b strings.Builder
	c := newCommand("classbind")
	c.SetArgs(args)
	c.SetOut(&b)
	c.SetErr(&b)
	err = c.ExecuteContext(t.Context())
	return b.String(), err
}

func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{"Nothing": {}, "Help": {"--help"}, "Serve": {"serve", "--help"}, "SetDefault": {"set-default", "--help"}, "Explain": {"explain", "--help"}, "Classes": {"classes", "--help"}, "Check": {"check", "--help"}, "Status": {"status", "--help"}, "Kinds": {"kinds", "--help"}} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, args...)
			require.NoError(t, err, "We should help.")
			assert.Contains(t, out, "Usage:\n  classbind", "We should say how to go on.")
		})
	}
}

func TestServeWithoutACluster(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent.kubeconfig")
	for name, tc := range map[string]struct {
		reason string
		env    string
		args   []string
	}{
		"Flag":        {reason: "We should name the file of --kubeconfig that does not exist.", args: []string{"serve", "--kubeconfig=" + absent}},
		"Environment": {reason: "We should name the file of $KUBECONFIG that does not exist.", env: absent, args: []string{"serve"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			_, err := run(t, tc.args...)
			require.ErrorContains(t, err, "cannot find a cluster: ", "We should say what we cannot do.")
			assert.Contains(t, err.Error(), absent, tc.reason)
			assert.Contains(t, err.Error(), "name a file with --kubeconfig or $KUBECONFIG", "We should say how to mend it.")
			assert.NotContains(t, err.Error(), "KUBERNETES_MASTER", "We should not name a variable that we do not read.")
		})
	}
}

func TestStopped(t *testing.T) {
	busy, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer func() { _ = busy.Close() }()
	_, err = net.Listen("tcp", busy.Addr().String())
	require.Error(t, err)
	got := stopped("cannot connect to the cluster", fmt.Errorf("error listening: %w", err))
	require.ErrorContains(t, got, "cannot listen: ", "We should not blame the cluster for a busy port.")
	assert.Contains(t, got.Error(), busy.Addr().String(), "We should name the address.")
	assert.Contains(t, got.Error(), "end the process that does, or choose another address with --webhook-bind-address, --health-probe-bind-address", "We should say how to mend it.")
	assert.NotContains(t, got.Error(), "cluster")

	_, err = net.Listen("tcp", "192.0.2.1:0") // RFC 5737: no machine has it.
	require.Error(t, err)
	got = stopped("cannot connect to the cluster", err)
	require.ErrorContains(t, got, ": choose another address with --webhook-bind-address", "We should say how to mend an address that is not ours.")
	assert.NotContains(t, got.Error(), "end the process", "We should not blame a process that there is not.")

	_, err = net.Dial("tcp", "localhost:1")
	require.Error(t, err)
	require.ErrorContains(t, stopped("cannot connect to the cluster", err), "cannot connect to the cluster: ", "We should not blame a port of ours for the cluster's.")
}

func TestPlugin(t *testing.T) {
	for _, program := range []string{"kubectl-classbind", "/usr/local/bin/kubectl-classbind", "kubectl-classbind.exe"} {
		var b strings.Builder
		c := newCommand(program)
		c.SetArgs([]string{"explain", "--help"})
		c.SetOut(&b)
		require.NoError(t, c.ExecuteContext(t.Context()))
		assert.Contains(t, b.String(), "Usage:\n  kubectl classbind explain (-f CLAIM | KIND/NAME)", "As a plugin of kubectl, we should print kubectl's command.")
		assert.Contains(t, b.String(), "  kubectl classbind explain -f claim.yaml\n", "The examples should work as they are.")
		assert.Contains(t, b.String(), "\n  kubectl classbind explain PostgreSQLInstance/my-database", "The examples should work as they are.")
	}
}

func TestPluginCompletion(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"Command": {[]string{"expl"}, "explain\t"},
		"Flag":    {[]string{"explain", "-o", ""}, "table\njson\nyaml\n:4\n"},
		"File":    {[]string{"explain", "-f", ""}, "yaml\nyml\njson\n:8\n"},
		"AnyFile": {[]string{"serve", "--kubeconfig", ""}, ":0\n"},
		"NoFile":  {[]string{"set-default", "Class/gold", "--for", ""}, ":4\n"},
		"Class":   {[]string{"set-default", ""}, ":4\n"},
		"Version": {[]string{"version", ""}, ":4\n"},
		"Serve":   {[]string{"serve", ""}, ":4\n"},
		"Kinds":   {[]string{"kinds", ""}, "gateway-api\t"},
		"Classes": {[]string{"classes", ""}, ":4\n"},
		"Output":  {[]string{"classes", "Database", "-o", ""}, "table\njson\nyaml\n:4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			c := newCommand("kubectl_complete-classbind", tc.args...)
			c.SetOut(&b)
			require.NoError(t, c.ExecuteContext(t.Context()))
			assert.Contains(t, b.String(), tc.want, "We should complete as kubectl asks us to.")
		})
	}
}

func TestExitStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   int
	}{
		"Explain": {"We should exit with 2 when explain fails: 1 is for a claim without a class.", []string{"explain"}, 2},
		"Flag":    {"We should do so for its flags, too.", []string{"explain", "--nonsense"}, 2},
		"Classes": {"We should exit with 2 when classes fails: 1 is for a claim that may get none.", []string{"classes"}, 2},
		"Status":  {"We should exit with 2 when status fails: 1 is for what is broken.", []string{"status", "--output=none"}, 2},
		"Others":  {"We should end with 1 after any other failure.", []string{"set-default"}, 1},
		"None":    {"We should not end with 1 where a pipeline misspells explain: it would mean that there is no class.", []string{"expain", "-f", "claim.yaml"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tc.args...)
			require.Error(t, err)
			assert.Equal(t, tc.want, exitStatus(err), tc.reason)
		})
	}
}
