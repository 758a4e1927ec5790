package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

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
