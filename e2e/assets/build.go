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
	_, _ = fmt.Fprintf(to, "building etcd, kube-apiserver and kubectl %s from source, once "+
		"(5 to 8 minutes on 2 cores, then cached in %s)\n", s.version, dir)
	start := time.Now()

	tmp := dir + ".building"
	if err := os.RemoveAll(tmp); err != nil { // of a builder that was killed
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.MkdirAll(tmp, 0o755); err != nil { //nolint:gosec // All users may run what it holds.
		return err
	}

	// This downloads what the build needs, so that the build's own output is packages only.
	deps, err := s.run(ctx, to, func(n int) string { return fmt.Sprintf("downloaded %d modules", n) }, "list", "-deps", "./cmd/kube")
	if err != nil {
		return err
	}
	// go build -v names what it compiles, not what its cache has: hence "at most".
	compiled := func(n int) string {
		return fmt.Sprintf("compiled %d of at most %d packages", n, strings.Count(deps, "\n"))
	}
	if _, err := s.run(ctx, to, compiled, "build", "-v", "-buildvcs=false", "-ldflags="+s.ldflags(),
		"-o", filepath.Join(tmp, "kube"), "./cmd/kube"); err != nil {
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
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(to, "built in %s\n", time.Since(start).Round(time.Second))
	return nil
}

// ldflags stamps the version, which Kubernetes otherwise reports as v0.0.0.
func (s source) ldflags() string {
	const pkg = "k8s.io/component-base/version"
	major, rest, _ := strings.Cut(strings.TrimPrefix(s.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, s.version, major, minor)
}

// run runs the go command, and until it ends reports what say makes of the number of
// lines that it has written to standard error. It returns standard output.
func (s source) run(ctx context.Context, to io.Writer, say func(lines int) string, args ...string) (string, error) {
	var stdout bytes.Buffer
	var stderr progress.Log
	cmd := goCommand(ctx, s.dir, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	end := progress.Ticking(func() {
		_, _ = fmt.Fprintf(to, "  %s, %s\n", say(strings.Count(stderr.String(), "\n")), time.Since(start).Round(time.Second))
	})
	err := cmd.Run()
	end()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], errors.Join(err, ctx.Err()), tail(stderr.String(), 20))
	}
	return stdout.String(), nil
}

func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := goCommand(ctx, dir, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // The callers choose the arguments.
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // needs no C compiler
	// Interrupted rather than killed, it removes its temporary files.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}
