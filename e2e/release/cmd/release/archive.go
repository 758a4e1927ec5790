package main

import (
	"bytes"
	"compress/gzip"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/classbind/classbind/e2e/release/image"
)

// archive of the binary of a platform, with what its license wants beside it. The header of gzip has neither name nor time.
func (b *builder) archive(of platform) ([]byte, error) {
	files := map[string]image.File{}
	for name, path := range map[string]string{
		"classbind": b.binary(of),
		"LICENSE":   filepath.Join(b.root, "LICENSE"),
		"README.md": filepath.Join(b.root, "README.md"),
	} {
		content, err := os.ReadFile(path) //nolint:gosec // It is ours.
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if name == "classbind" {
			mode = 0o755
		}
		files[name] = image.File{Mode: mode, Content: content}
	}
	return b.targz(files)
}

func (b *builder) targz(files map[string]image.File) ([]byte, error) {
	var archive bytes.Buffer
	z, err := gzip.NewWriterLevel(&archive, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := image.Tar(z, files, b.time); err != nil {
		return nil, err
	}
	err = z.Close()
	return archive.Bytes(), err
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
