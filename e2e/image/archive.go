package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// maxFile limits a file of an archive: our binary has some ten megabytes.
const maxFile = 1 << 30

// Archive returns an OCI archive, an OCI layout in a tar file, of one image, a
// v1.Image or a v1.ImageIndex, which whoever loads it finds under the name ref.
func Archive(ref string, image mutate.Appendable) ([]byte, error) {
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("cannot name the image %q: %w; it needs a registry and a tag, as in localhost/classbind:dev", ref, err)
	}
	archive, err := archiveOf(tag, image)
	if err != nil {
		return nil, fmt.Errorf("cannot write the archive of %q: %w", ref, err)
	}
	return archive, nil
}

func archiveOf(tag name.Tag, image mutate.Appendable) ([]byte, error) {
	dir, err := os.MkdirTemp("", "classbind-image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	names := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          tag.Name(), // for containerd, and so for kind
		"org.opencontainers.image.ref.name": tag.Name(), // for podman and skopeo
	})
	switch image := image.(type) {
	case v1.Image:
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		if err := path.AppendImage(image, layout.WithPlatform(*config.Platform()), names); err != nil {
			return nil, err
		}
	case v1.ImageIndex:
		if err := path.AppendIndex(image, names); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("it is neither an image nor an index: %T", image)
	}
	return pack(dir)
}

// pack a folder as a tar file.
func pack(dir string) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	files := os.DirFS(dir)
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return add(w, path, 0o644, time.Unix(0, 0), content)
	})
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

// IsArchive reports whether a file is a tar file, and so no binary.
func IsArchive(path string) (bool, error) {
	f, err := os.Open(path) //nolint:gosec // The user names the file.
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	start := make([]byte, 262)
	if _, err := io.ReadFull(f, start); err != nil {
		return false, nil // It is too short.
	}
	return string(start[257:]) == "ustar", nil
}

// Read the one image of an OCI archive into a folder, and check its digests.
func Read(archive, dir string) (mutate.Appendable, error) {
	image, err := read(archive, dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the OCI archive %q: %w", archive, err)
	}
	return image, nil
}

func read(archive, dir string) (mutate.Appendable, error) {
	if err := unpack(archive, dir); err != nil {
		return nil, err
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	if n := len(manifest.Manifests); n != 1 {
		return nil, fmt.Errorf("it has %d images, and not one", n)
	}
	entry := manifest.Manifests[0]
	switch {
	case entry.MediaType.IsIndex():
		index, err := all.ImageIndex(entry.Digest)
		if err != nil {
			return nil, err
		}
		return index, validate.Index(index)
	case entry.MediaType.IsImage():
		image, err := all.Image(entry.Digest)
		if err != nil {
			return nil, err
		}
		return image, validate.Image(image)
	}
	return nil, fmt.Errorf("it has a %s, and no %s", entry.MediaType, types.OCIImageIndex)
}

func unpack(archive, dir string) error {
	f, err := os.Open(archive) //nolint:gosec // The user names the file.
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	root, err := os.OpenRoot(dir) // which no name in the archive leaves
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if header.Size > maxFile {
			return fmt.Errorf("%q has %d bytes: at most %d are read", header.Name, header.Size, maxFile)
		}
		content, err := io.ReadAll(io.LimitReader(r, maxFile))
		if err != nil {
			return err
		}
		path := filepath.FromSlash(header.Name)
		if err := root.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := root.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
}
