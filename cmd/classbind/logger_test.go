package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// TestLoggers runs each command in a process of its own, because the logger is the process's.
func TestLoggers(t *testing.T) {
	if args := os.Getenv("CLASSBIND_TEST_ARGS"); args != "" {
		c := newCommand("classbind")
		c.SetArgs(strings.Fields(args))
		_ = c.ExecuteContext(t.Context()) // It finds no cluster.
		fmt.Printf("logger: %T\n", ctrl.Log.WithName("x").GetSink())
		return
	}
	t.Parallel()
	args := map[string]string{
		"bind": "claims.example.org", "check": "--rules", "chooser": "check 127.0.0.1:1", "classes": "claims",
		"explain": "claim/a", "kinds": "", "register": "a.example.org b.example.org",
		"serve": "", "set-default": "class/a --for claims.example.org", "simulate": "--remove class/a", "status": "", "ui": "", "version": "",
	}
	for _, c := range newCommand("classbind").Commands() {
		t.Run(c.Name(), func(t *testing.T) {
			t.Parallel()
			given, known := args[c.Name()]
			require.True(t, known, "Add the arguments with which the command begins to work.")
			p := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLoggers$", "-test.v") //nolint:gosec // It is this test.
			p.Env = append(os.Environ(), "CLASSBIND_TEST_ARGS="+c.Name()+" "+given, "KUBECONFIG="+t.TempDir()+"/none", "KUBERNETES_SERVICE_HOST=")
			out, err := p.CombinedOutput()
			require.NoError(t, err, string(out))
			assert.Contains(t, string(out), "logger: ")
			assert.NotContains(t, string(out), "logger: *log.delegatingLogSink", "A command should set the logger, even if it is to log nothing.")
		})
	}
}

// TestLogs prints each message once.
func TestLogs(t *testing.T) {
	var b strings.Builder
	setLogs(1, &b)
	klog.ClearLogger() // Other tests have set one.
	t.Cleanup(func() { setLogs(0, nil) })
	klog.Warning("a warning")
	klog.Error("an error")
	klog.Flush()
	assert.Len(t, strings.Split(strings.TrimSpace(b.String()), "\n"), 2, b.String())
}
