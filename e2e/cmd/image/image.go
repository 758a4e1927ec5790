package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is every time in the archive, so that one binary makes one archive.
var epoch = time.Unix(0, 0).UTC()

// pack a binary as the image ref, and return the OCI archive of it.
func pack(ref, binary string) ([]byte, error) {
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("cannot name the image %q: %w; it needs a registry and a tag, as in localhost/classbind:dev", ref, err)
	}
	platform, err := platformOf(binary)
	if err != nil {
		return nil, fmt.Errorf("cannot pack %q: %w", binary, err)
	}
	image, err := imageOf(binary, platform)
	if err != nil {
		return nil, fmt.Errorf("cannot pack %q: %w", binary, err)
	}
	archive, err := archiveOf(image, tag, platform)
	if err != nil {
		return nil, fmt.Errorf("cannot write the archive of %q: %w", ref, err)
	}
	return archive, nil
}

// platformOf a binary that an image without anything else can run.
func platformOf(binary string) (v1.Platform, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return v1.Platform{}, fmt.Errorf("%w; make build makes one", err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	platform := v1.Platform{OS: settings["GOOS"], Architecture: settings["GOARCH"]}
	if platform.OS != "linux" {
		return v1.Platform{}, fmt.Errorf("it is built for %s: build it with GOOS=linux", platform.OS)
	}
	f, err := elf.Open(binary)
	if err != nil {
		return v1.Platform{}, err
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return v1.Platform{}, fmt.Errorf("it is dynamically linked, and the image has no libraries: build it with CGO_ENABLED=0")
		}
	}
	return platform, nil
}

// imageOf the binary is what the Dockerfile says.
func imageOf(binary string, platform v1.Platform) (v1.Image, error) {
	content, err := os.ReadFile(binary) //nolint:gosec // The user names the file.
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	if err := add(w, "classbind", 0o755, content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: epoch}}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, v1.Time{Time: epoch}
	config.Config = v1.Config{User: "65532:65532", Entrypoint: []string{"/classbind"}}
	return mutate.ConfigFile(image, config)
}

// archiveOf the image is an OCI layout in a tar file.
func archiveOf(image v1.Image, tag name.Tag, platform v1.Platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "classbind-image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	index, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := index.AppendImage(image, layout.WithPlatform(platform), layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          tag.Name(), // for containerd, and so for kind
		"org.opencontainers.image.ref.name": tag.Name(), // for podman and skopeo
	})); err != nil {
		return nil, err
	}

	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	files := os.DirFS(dir)
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return add(w, path, 0o644, content)
	})
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

// add a file of root's.
func add(w *tar.Writer, name string, mode int64, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: epoch}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
