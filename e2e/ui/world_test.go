// Package ui tests classbind ui in a real browser, against a real API server. It is a module of its own, so that no one else needs
// the driver of the browser.
package ui

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// patience is for everything that a test waits for.
const patience = 3 * time.Minute

// command is the built one.
var command string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "classbind-ui-")
		if err == nil {
			defer func() { _ = os.RemoveAll(dir) }()
			command, err = classbind.Build(context.Background(), dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			return 1
		}
		return m.Run()
	}())
}

// world is a control plane with deploy applied.
type world struct {
	*controlplane.ControlPlane

	// server is the kubeconfig of classbind's ServiceAccount.
	server string
	deploy string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), controlplane.Options{Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	deploy, err := classbind.Deploy(t.Context())
	require.NoError(t, err)
	return &world{ControlPlane: plane, deploy: deploy}
}

func (w *world) install(t *testing.T) {
	t.Helper()
	kubeconfigs, err := classbind.Install(t.Context(), w.ControlPlane, w.deploy, "policies")
	require.NoError(t, err)
	w.server = kubeconfigs[0]
}

// serve runs a replica of classbind.
func (w *world) serve(t *testing.T) {
	t.Helper()
	var log bytes.Buffer
	p, err := classbind.Start(command, w.server, &log)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Stop(), log.String()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.Ready(ctx))
}

// kubectl as the admin, until it succeeds: what needs a kind that is not served yet is applied again.
func (w *world) kubectl(t *testing.T, stdin string, args ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, _, err := w.Kubectl(t.Context(), strings.NewReader(stdin), args...)
		require.NoError(c, err)
	}, patience, time.Second)
}

var printed = regexp.MustCompile(`^http://127\.0\.0\.1:\d+/[A-Z2-7]{26}/$`)

// ui is classbind ui as a process.
type ui struct {
	// url has the token.
	url string
	cmd *exec.Cmd
	err *bytes.Buffer
	end func() error
}

func startUI(t *testing.T, kubeconfig string) *ui {
	t.Helper()
	u := &ui{err: &bytes.Buffer{}}
	u.cmd = exec.Command(command, "ui", "--kubeconfig="+kubeconfig) //nolint:gosec // It is under test.
	u.cmd.Stderr = u.err
	out, err := u.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, u.cmd.Start())
	u.end = sync.OnceValue(func() error {
		return errors.Join(u.cmd.Process.Signal(syscall.SIGTERM), u.cmd.Wait())
	})
	t.Cleanup(func() { assert.NoError(t, u.end(), "It should end well: %s", u.err) })
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "We should print the URL: %s", u.err)
	u.url = lines.Text()
	require.Regexp(t, printed, u.url)
	return u
}

// at is the URL of a path.
func (u *ui) at(path string) string { return strings.TrimSuffix(u.url, "/") + path }
