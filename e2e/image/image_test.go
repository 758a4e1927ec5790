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
	"time"

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

// unpacked is the index of an archive.
func unpacked(t *testing.T, archive []byte) v1.ImageIndex {
	t.Helper()
	tar := exec.CommandContext(t.Context(), "tar", "-x")
	tar.Dir, tar.Stdin = t.TempDir(), bytes.NewReader(archive)
	out, err := tar.CombinedOutput()
	require.NoError(t, err, "%s", out)
	index, err := layout.ImageIndexFromPath(tar.Dir)
	require.NoError(t, err)
	return index
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

	index := unpacked(t, archive)
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
	inside, err := io.ReadAll(files)
	require.NoError(t, err)
	built, err := os.ReadFile(binary) //nolint:gosec // The test has just written it.
	require.NoError(t, err)
	assert.True(t, bytes.Equal(built, inside), "We should find the binary in the image.")
	_, err = files.Next()
	assert.Equal(t, io.EOF, err, "We should find nothing else in the image.")
}

// programFor builds a program for an architecture.
func programFor(t *testing.T, goarch string) string {
	t.Helper()
	t.Setenv("GOARCH", goarch)
	return program(t, "-ldflags=-s -w")
}

func TestIndex(t *testing.T) {
	about := About{Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Labels: map[string]string{"org.opencontainers.image.version": "v0.1.0"}}
	platforms := []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
	var images []v1.Image
	for _, p := range platforms {
		image, err := New(programFor(t, p.Architecture), about)
		require.NoError(t, err)
		images = append(images, image)
	}
	made, err := Index(about, images...)
	require.NoError(t, err)
	archive, err := Archive("example.com/classbind:v0.1.0", made)
	require.NoError(t, err)
	all := unpacked(t, archive)
	digest, err := made.Digest()
	require.NoError(t, err)
	index, err := all.ImageIndex(digest)
	require.NoError(t, err, "We should find the images of all platforms behind one name.")
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	assert.Equal(t, about.Labels, manifest.Annotations)
	require.Len(t, manifest.Manifests, 2)
	for i, entry := range manifest.Manifests {
		assert.Equal(t, &platforms[i], entry.Platform)
		image, err := index.Image(entry.Digest)
		require.NoError(t, err)
		of, err := image.Manifest()
		require.NoError(t, err)
		assert.Equal(t, about.Labels, of.Annotations)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, about.Labels, config.Config.Labels)
		assert.Equal(t, about.Created, config.Created.UTC())
		assert.Equal(t, platforms[i], *config.Platform())
	}
}

func TestPackRefuses(t *testing.T) {
	static := program(t)
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600))
	cases := map[string]struct {
		reason      string
		ref, binary string
		want        string
	}{
		"NoRegistry": {reason: "We should not guess a registry, for which containerd has another default than others.", ref: "classbind:dev", binary: static, want: "it needs a registry and a tag"},
		"NoTag":      {reason: "We should not guess a tag.", ref: "localhost/classbind", binary: static, want: "it needs a registry and a tag"},
		"Malformed":  {reason: "We should refuse what is no reference.", ref: "localhost/Class Bind:dev", binary: static, want: `cannot name the image "localhost/Class Bind:dev"`},
		"Missing":    {reason: "We should say how to make a binary that is not there.", ref: "localhost/classbind:dev", binary: static + "-missing", want: "make build"},
		"NoBinary":   {reason: "We should refuse a file that is no binary.", ref: "localhost/classbind:dev", binary: text, want: "cannot pack"},
		"Dynamic":    {reason: "We should refuse a binary that needs a loader, which the image does not have.", ref: "localhost/classbind:dev", binary: program(t, "-buildmode=pie"), want: "build it with CGO_ENABLED=0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := packed(tc.ref, tc.binary, About{})
			require.ErrorContains(t, err, tc.want, tc.reason)
		})
	}
}
