package e2e

import (
	"archive/tar"
	"fmt"
	"io"
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

	"github.com/classbind/classbind/e2e/assets"
	"github.com/classbind/classbind/e2e/assets/assetstest"
	"github.com/classbind/classbind/e2e/progress"
)

// TestRun does what make run says, and ends it.
func TestRun(t *testing.T) {
	long(t)
	t.Parallel()
	notInPods(t, "It starts a control plane of its own.")
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
			out := &progress.Log{}
			run := exec.Command("make", "run") //nolint:noctx // It is to end by the signal alone.
			run.Dir, run.Stdout, run.Stderr = "..", out, out
			run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			run.WaitDelay = patience // Its children have the pipe.
			require.NoError(t, run.Start())
			t.Cleanup(func() { _ = syscall.Kill(-run.Process.Pid, syscall.SIGTERM) })
			environment := regexp.MustCompile(`export (KUBECONFIG='([^']+)' PATH=.*)`)
			require.EventuallyWithT(t, func(c *attempt) {
				require.Regexp(c, environment, out.String())
				require.Contains(c, out.String(), "its Deployment stays at 0 of 2 pods")
			}, 10*time.Minute, 100*time.Millisecond) // It may have to compile.
			said := environment.FindStringSubmatch(out.String())
			shell := func(command string) string {
				in := exec.CommandContext(t.Context(), "sh", "-euc", fmt.Sprintf("export %s; cd ..; %s", said[1], command)) //nolint:gosec // It runs what make run prints.
				text, err := in.CombinedOutput()
				require.NoError(t, err, "%s", text)
				return string(text)
			}
			for _, b := range documented(t, "README.md") {
				want := "...\n" + strings.Join(b.lines, "\n") + "\n..."
				assert.True(t, docMatches(want, out.String()), "We should print what README shows:\n%s", out)
			}
			assert.Contains(t, shell("classbind explain PostgreSQLInstance/gitlab-database --namespace acme-team --unbound"), "bound to", "We should have classbind on the PATH.")
			shell("kubectl delete -k deploy --wait=false")

			process := run.Process.Pid
			if tc.all {
				process = -process
			}
			require.NoError(t, syscall.Kill(process, tc.signal))
			_ = run.Wait() // make ends by the signal.
			eventually(t, func(c *attempt) {
				require.NoDirExists(c, filepath.Dir(said[2]), "We should clean up.")
				require.NoError(c, gone(-run.Process.Pid))
			}, tc.reason)
			assert.NotContains(t, strings.ToLower(out.String()), "error", tc.reason)
		})
	}
}

// TestFirstMinute has a clone, Go, and an index of envtest: it runs the demonstration, and builds no Kubernetes. What the index lists
// starts our own binaries, so the time of the download itself is not in what is logged.
func TestFirstMinute(t *testing.T) {
	long(t)
	notInPods(t, "It starts a control plane of its own.")
	binaries := must(assets.Dir(t.Context(), os.Stderr))(t)
	files := map[string]string{}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		files[name] = fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", filepath.Join(binaries, name))
	}
	clone := filepath.Join(t.TempDir(), "classbind")
	out, err := exec.CommandContext(t.Context(), "git", "clone", "--quiet", "..", clone).CombinedOutput() //nolint:gosec // It is a folder of the test's.
	if err != nil {
		t.Skipf("It needs a clone: %s", out)
	}
	demo := exec.CommandContext(t.Context(), "make", "demo")
	demo.Dir = clone
	demo.Env = append(os.Environ(), "KUBEBUILDER_ASSETS=", "ENVTEST_INDEX="+assetstest.Index(t, "v1.37.1", files, assetstest.Checksum)+"/index.yaml")
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} { // What is compiled and downloaded stays known.
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output() //nolint:gosec // The names are above.
		require.NoError(t, err)
		demo.Env = append(demo.Env, name+"="+strings.TrimSpace(string(value)))
	}
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
		demo.Env = append(demo.Env, name+"="+t.TempDir())
	}
	begin := time.Now()
	out, err = demo.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("The demonstration took %s.", time.Since(begin).Round(time.Second))
	said := string(out)
	assert.Contains(t, said, "downloading etcd, kube-apiserver, kubectl of Kubernetes 1.37.x", "We should download.")
	assert.NotContains(t, said, "from source", "We should build no Kubernetes.")
	assert.Regexp(t, `after +\S+ (CloudSQL|RDS)InstanceClass/`, said, "We should show claims that are bound.")
}

func gone(process int) error {
	if err := syscall.Kill(process, 0); err != syscall.ESRCH {
		return fmt.Errorf("%d is there: %w", process, err)
	}
	return nil
}

// TestImageArchive has make write the image. With paths of this machine in the program, it shares what is compiled with other tests.
func TestImageArchive(t *testing.T) {
	long(t)
	t.Parallel()
	notInPods(t, "It needs Go.")
	folder := filepath.Join(t.TempDir(), "classbind")
	copyRepository(t, folder)
	archive := exec.CommandContext(t.Context(), "make", "--no-print-directory", "image-archive", "TRIMPATH=", "IMAGE=registry.example.com/classbind:v1")
	archive.Dir = folder
	out, err := archive.CombinedOutput()
	require.NoError(t, err, "%s", out)
	f, err := os.Open(filepath.Join(folder, "bin", "classbind.tar")) //nolint:gosec // The folder is the test's own.
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	files := tar.NewReader(f)
	for {
		header, err := files.Next()
		require.NotErrorIs(t, err, io.EOF, "We should find the index of the layout.")
		require.NoError(t, err)
		if header.Name == "index.json" {
			break
		}
	}
	index := must(io.ReadAll(files))(t)
	assert.Contains(t, string(index), `"registry.example.com/classbind:v1"`, "We should name the image as IMAGE says.")
}
