package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRun does what make run says, and ends it.
func TestRun(t *testing.T) {
	t.Parallel()
	if inPods() {
		t.Skip("It starts a control plane of its own.")
	}
	// A process that ignores interrupts has its children ignore them, too.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	for name, tc := range map[string]struct {
		reason string
		signal syscall.Signal
		// all says that the children of make get the signal, as they do from a terminal.
		all bool
	}{
		"Interrupt": {reason: "We should end without an error when people press Ctrl-C.", signal: syscall.SIGINT, all: true},
		"Terminate": {reason: "We should end when make alone is told to, and leave no server behind.", signal: syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			out := &lockedBuffer{}
			run := exec.Command("make", "run") //nolint:noctx // It is to end by the signal alone.
			run.Dir, run.Stdout, run.Stderr = "..", out, out
			run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			run.WaitDelay = patience // Its children have the pipe.
			require.NoError(t, run.Start())
			t.Cleanup(func() { _ = syscall.Kill(-run.Process.Pid, syscall.SIGTERM) })
			environment := regexp.MustCompile(`export (KUBECONFIG='([^']+)' PATH=.*)`)
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				require.Regexp(c, environment, out.String())
				require.Contains(c, out.String(), "its Deployment stays at 0 of 2 pods")
			}, 5*time.Minute, 100*time.Millisecond)
			said := environment.FindStringSubmatch(out.String())
			shell := func(command string) string {
				t.Helper()
				in := exec.CommandContext(t.Context(), "sh", "-euc", fmt.Sprintf("export %s; cd ..; %s", said[1], command)) //nolint:gosec // It runs what make run prints.
				text, err := in.CombinedOutput()
				require.NoError(t, err, "%s", text)
				return string(text)
			}
			for _, b := range documented(t, "README.md") {
				want := "...\n" + strings.Join(b.lines, "\n") + "\n..."
				assert.True(t, docMatches(want, out.String()), "We should print what README shows:\n%s", out) //nolint:testifylint // The pattern says more.
			}
			assert.Contains(t, shell("classbind explain PostgreSQLInstance/gitlab-database --namespace acme-team --unbound"), "bound to", "We should have classbind on the PATH.")
			shell("kubectl delete -k deploy --wait=false")

			process := run.Process.Pid
			if tc.all {
				process = -process
			}
			require.NoError(t, syscall.Kill(process, tc.signal))
			_ = run.Wait() // make ends by the signal.
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				require.NoDirExists(c, filepath.Dir(said[2]), "We should clean up.")
				require.NoError(c, gone(-run.Process.Pid))
			}, patience, 100*time.Millisecond, tc.reason)
			assert.NotContains(t, strings.ToLower(out.String()), "error", tc.reason)
		})
	}
}

// TestMakeBuild reads what make build would do.
func TestMakeBuild(t *testing.T) {
	build := exec.CommandContext(t.Context(), "make", "--no-print-directory", "--dry-run", "build") // The tests may run under make, too.
	build.Dir = ".."
	out, err := build.Output()
	require.NoError(t, err)
	first, rest, _ := strings.Cut(string(out), "\n")
	assert.Contains(t, first, "==> Compiling classbind", "We should say what takes minutes.")
	assert.Regexp(t, "^CGO_ENABLED=0 go build", rest, "We should compile as the demonstration does, whose cache is used then.")
	assert.NotContains(t, rest, "-trimpath")
}

// gone is an error while a process or a group of them is there.
func gone(process int) error {
	if err := syscall.Kill(process, 0); err != syscall.ESRCH {
		return fmt.Errorf("%d is there: %w", process, err)
	}
	return nil
}
