package image

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
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

// packed is the archive of a binary.
func packed(ref, binary string, about About) ([]byte, error) {
	image, err := New(binary, about)
	if err != nil {
		return nil, err
	}
	return Archive(ref, image)
}

func TestPack(t *testing.T) {
	const ref = "localhost/classbind:dev"
	binary := program(t, "-ldflags=-s -w")
	archive, err := packed(ref, binary, About{})
	require.NoError(t, err)

	assert.True(t, bytes.HasSuffix(archive, make([]byte, 1024)), "We should end the archive as tar does; Go's reader alone needs no end.")
	again, err := packed(ref, binary, About{})
	require.NoError(t, err)
	assert.Equal(t, archive, again, "We should write the same archive of the same binary.")

	unpack := exec.CommandContext(t.Context(), "tar", "-x")
	unpack.Dir, unpack.Stdin = t.TempDir(), bytes.NewReader(archive)
	out, err := unpack.CombinedOutput()
	require.NoError(t, err, "%s", out)
	index, err := layout.ImageIndexFromPath(unpack.Dir)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	entry := manifest.Manifests[0]
	assert.Equal(t, map[string]string{"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": ref}, entry.Annotations)
	assert.Equal(t, &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, entry.Platform)
	assert.Equal(t, types.OCIManifestSchema1, entry.MediaType)

	image, err := index.Image(entry.Digest)
	require.NoError(t, err)
	require.NoError(t, validate.Image(image), "We should write digests that are right.")
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, v1.Config{User: "65532:65532", Entrypoint: []string{"/classbind"}}, config.Config)
	assert.Equal(t, v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, *config.Platform())

	layers, err := image.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	layer, err := layers[0].Uncompressed()
	require.NoError(t, err)
	files := tar.NewReader(layer)
	header, err := files.Next()
	require.NoError(t, err)
	assert.Equal(t, "classbind", header.Name)
	assert.Equal(t, os.FileMode(0o755), header.FileInfo().Mode(), "We should let any user execute it, and none but root change it.")
	assert.Zero(t, header.Uid)
	assert.Zero(t, header.ModTime.Unix(), "We should write no time of the day, or no two archives are the same.")
	assert.Zero(t, config.Created.Unix())
	_, err = files.Next()
	assert.Equal(t, io.EOF, err, "We should find nothing else in the image.")
}

func TestPackRefuses(t *testing.T) {
	static := program(t)
	cases := map[string]struct {
		reason      string
		ref, binary string
		want        string
	}{
		"NoTag":   {reason: "We should not guess a tag.", ref: "localhost/classbind", binary: static, want: "it needs a registry and a tag"},
		"Missing": {reason: "We should say how to make a binary that is not there.", ref: "localhost/classbind:dev", binary: static + "-missing", want: "make build"},
		"Dynamic": {reason: "We should refuse a binary that needs a loader, which the image does not have.", ref: "localhost/classbind:dev", binary: program(t, "-buildmode=pie"), want: "build it with CGO_ENABLED=0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := packed(tc.ref, tc.binary, About{})
			require.ErrorContains(t, err, tc.want, tc.reason)
		})
	}
}
