// Package assets has etcd, kube-apiserver and kubectl: somebody else's, those of envtest, or built from source, once for each version. It
// imports none of what it builds, so that a first run reports progress within a second.
package assets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// envAssets is envtest's own variable: with binaries in it, none need be built.
const envAssets = "KUBEBUILDER_ASSETS"

// envKubernetes chooses the release that is built: "oldest" is the oldest that classbind supports, and nothing the newest.
const envKubernetes = "KUBERNETES"

var binaries = []string{"etcd", "kube-apiserver", "kubectl"}

// Dir returns the absolute path of a folder with etcd, kube-apiserver and kubectl. It takes the first of these: $KUBEBUILDER_ASSETS; what
// it built before; what envtest has stored; a download as envtest makes it, by the index in $ENVTEST_INDEX; and a build from cmd/kube, into
// the user's cache. The last two take time, so progress (may be nil) gets what goes on. Any number of processes may call it at once: one
// builds, the others wait. The working directory must be in the e2e module, unless $KUBEBUILDER_ASSETS is set.
func Dir(ctx context.Context, progress io.Writer) (string, error) {
	if dir := os.Getenv(envAssets); dir != "" {
		dir, err := filepath.Abs(dir)
		if err == nil {
			err = complete(dir)
		}
		if err != nil {
			return "", fmt.Errorf("cannot use $%s: %w; unset it to have the binaries downloaded or built", envAssets, err)
		}
		return dir, nil
	}

	src, err := findSource(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot find the source of %s: %w; run this in the e2e module or set $%s to a folder that has them",
			strings.Join(binaries, ", "), err, envAssets)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a folder for caches: %w", err)
	}
	cache = filepath.Join(cache, "classbind")
	dir := filepath.Join(cache, "kubernetes-"+src.version+"-"+src.key)
	if complete(dir) == nil {
		return dir, nil
	}

	if progress == nil {
		progress = io.Discard
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // All users may run what it holds.
		return "", fmt.Errorf("cannot create a folder for caches: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(cache, "build.lock"), progress)
	if err != nil {
		return "", fmt.Errorf("cannot lock the cache: %w", err)
	}
	defer unlock()
	if complete(dir) == nil { // by the one we waited for
		return dir, nil
	}
	if stored, ok := src.stored(ctx); ok {
		return stored, nil
	}
	downloaded, err := src.download(ctx, progress)
	if !errors.Is(err, errNoDownload) {
		return downloaded, err
	}
	_, _ = fmt.Fprintf(progress, "%v\n", err)
	if err := src.build(ctx, dir, progress); err != nil {
		return "", fmt.Errorf("cannot build %s: %w", strings.Join(binaries, ", "), err)
	}
	return dir, nil
}

// complete says which of the binaries dir lacks.
func complete(dir string) error {
	for _, name := range binaries {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("no executable %q in %q: %w", name, dir, errors.Unwrap(err))
		}
	}
	return nil
}

// source is what the binaries are built from.
type source struct {
	dir     string // of the e2e module, or of e2e/oldest
	version string // of Kubernetes, as in "v1.37.2"
	key     string // changes with anything that the binaries are made of
}

func findSource(ctx context.Context) (source, error) {
	dir, err := goOutput(ctx, "", "list", "-m", "-f", "{{.Dir}}", "github.com/classbind/classbind/e2e")
	if err != nil {
		return source{}, err
	}
	switch release := os.Getenv(envKubernetes); release {
	case "":
	case "oldest":
		dir = filepath.Join(dir, "oldest")
	default:
		return source{}, fmt.Errorf(`$%s is %q: set it to "oldest", or unset it`, envKubernetes, release)
	}
	version, err := goOutput(ctx, dir, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return source{}, err
	}
	toolchain, err := goOutput(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return source{}, err
	}

	files, err := filepath.Glob(filepath.Join(dir, "cmd", "kube", "*.go"))
	if err != nil {
		return source{}, err
	}
	h := sha256.New()
	h.Write([]byte(toolchain))
	for _, name := range append(files, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")) {
		b, err := os.ReadFile(name) //nolint:gosec // It is one of our sources.
		if err != nil {
			return source{}, err
		}
		h.Write(fmt.Appendf(nil, "%s %d\n", filepath.Base(name), len(b)))
		h.Write(b)
	}
	return source{dir: dir, version: version, key: hex.EncodeToString(h.Sum(nil))[:12]}, nil
}

// lock takes the file's advisory lock, which the kernel gives back however its holder ends.
func lock(ctx context.Context, name string, progress io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644) //nolint:gosec // It locks, and holds nothing.
	if err != nil {
		return nil, err
	}
	for waiting := false; ; waiting = true {
		// Not blocking: a blocked flock would ignore ctx.
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, err
		}
		if !waiting {
			_, _ = fmt.Fprintf(progress, "waiting for another process that is building %s\n", strings.Join(binaries, ", "))
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
