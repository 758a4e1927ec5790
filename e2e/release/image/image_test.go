package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program is built for Linux, static unless the flags say otherwise.
func program(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600))
	binary := filepath.Join(dir, "program")
	build := exec.CommandContext(t.Context(), "go", append(append([]string{"build"}, flags...), "-o", binary, source)...) //nolint:gosec // What it builds is ours.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

func TestPack(t *testing.T) {
	static := program(t)
	for name, tc := range map[string]struct{ reason, ref, binary, want string }{
		"Static":  {"We should pack a static binary.", "localhost/classbind:dev", static, ""},
		"NoTag":   {"We should not guess a tag.", "localhost/classbind", static, "it needs a registry and a tag"},
		"Missing": {"We should say how to make a binary that is not there.", "localhost/classbind:dev", static + "-missing", "make build"},
		"Dynamic": {
			"We should refuse a binary that needs a loader, which the image does not have.",
			"localhost/classbind:dev", program(t, "-buildmode=pie"), "build it with CGO_ENABLED=0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			image, err := New(tc.binary, About{Created: time.Unix(0, 0)})
			if err == nil {
				_, err = Archive(tc.ref, image)
			}
			if tc.want == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.ErrorContains(t, err, tc.want, tc.reason)
		})
	}
}
