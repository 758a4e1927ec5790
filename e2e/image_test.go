package e2e

import (
	"archive/tar"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestImageArchive has make write the image. With paths of this machine in the program, it shares
// what is compiled with other tests.
func TestImageArchive(t *testing.T) {
	long(t)
	t.Parallel()
	if inPods() {
		t.Skip("It needs Go.")
	}
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
	index, err := io.ReadAll(files)
	require.NoError(t, err)
	assert.Contains(t, string(index), `"registry.example.com/classbind:v1"`, "We should name the image as IMAGE says.")
}
