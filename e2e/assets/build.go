package assets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/classbind/classbind/e2e/progress"
)

// build makes dir, whole or not at all. The caller holds the lock.
func (s source) build(ctx context.Context, dir string, to io.Writer) error {
	tmp := dir + ".building"
	if err := os.RemoveAll(tmp); err != nil { // of a builder that was killed
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.MkdirAll(tmp, 0o755); err != nil { //nolint:gosec // All users may run what it holds.
		return err
	}
	what := fmt.Sprintf("building etcd, kube-apiserver and kubectl %s from source, once (5 to 8 minutes on 2 cores)", s.version)
	_, err := s.run(ctx, to, what, "build", "-buildvcs=false", "-ldflags="+s.ldflags(), "-o", filepath.Join(tmp, "kube"), "./cmd/kube")
	if err != nil {
		return err
	}
	for _, name := range binaries {
		if err := os.Symlink("kube", filepath.Join(tmp, name)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil { // it may be there, incomplete
		return err
	}
	return os.Rename(tmp, dir)
}

// ldflags stamps the version, which Kubernetes otherwise reports as v0.0.0.
func (s source) ldflags() string {
	const pkg = "k8s.io/component-base/version"
	major, minor := s.minor()
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, s.version, major, minor)
}

// minor version of Kubernetes, any patch of which is good enough to download.
func (s source) minor() (major, minor string) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(s.version, "v"), ".")
	minor, _, _ = strings.Cut(rest, ".")
	return major, minor
}

// run runs the go command, says what it does until it ends, and returns its standard output.
func (s source) run(ctx context.Context, to io.Writer, what string, args ...string) (out string, err error) {
	err = progress.During(to, what, func() error {
		out, err = goOutput(ctx, s.dir, args...)
		return err
	})
	return out, err
}

func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // The callers choose the arguments.
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // needs no C compiler
	// Interrupted rather than killed, it removes its temporary files.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", errors.Join(err, ctx.Err()), bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
