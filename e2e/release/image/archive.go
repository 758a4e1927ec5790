package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Archive returns an OCI archive, an OCI layout in a tar file, of one image, a
// v1.Image or a v1.ImageIndex, which loads under the name ref.
func Archive(ref string, image mutate.Appendable) (archive []byte, err error) {
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("cannot name the image %q: %w; it needs a registry and a tag, as in localhost/classbind:dev", ref, err)
	}
	dir, err := os.MkdirTemp("", "classbind-image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	only := mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Annotations: map[string]string{
		"io.containerd.image.name":          tag.Name(), // for containerd, and so for kind
		"org.opencontainers.image.ref.name": tag.Name(), // for podman and skopeo
	}}}
	if image, ok := image.(v1.Image); ok {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		only.Platform = config.Platform()
	}
	if _, err := layout.Write(dir, mutate.AppendManifests(empty.Index, only)); err != nil {
		return nil, err
	}
	return pack(dir)
}

// pack a folder as a tar file.
func pack(dir string) ([]byte, error) {
	files := map[string]File{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		files[path] = File{0o644, content}
		return err
	})
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	err = Tar(&archive, files, time.Unix(0, 0))
	return archive.Bytes(), err
}

// File of an archive.
type File struct {
	Mode    int64
	Content []byte
}

// Tar writes files in the order of their names, all of root's and of one time.
func Tar(to io.Writer, files map[string]File, modified time.Time) error {
	w := tar.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		header := &tar.Header{
			Typeflag: tar.TypeReg, Format: tar.FormatUSTAR, Name: name, Mode: f.Mode, Size: int64(len(f.Content)), ModTime: modified,
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.Content); err != nil {
			return err
		}
	}
	return w.Close()
}
