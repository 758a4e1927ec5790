package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// archive of the binary of a platform, with what its license wants beside it.
func (b *builder) archive(of platform) ([]byte, error) {
	files := map[string]file{}
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
		files[name] = file{mode: mode, content: content}
	}
	return tarball(files, b.time)
}

type file struct {
	mode    int64
	content []byte
}

// tarball of files in the order of their names, all of root's and of one time. The header of gzip has neither name nor time.
func tarball(files map[string]file, modified time.Time) ([]byte, error) {
	var archive bytes.Buffer
	z, err := gzip.NewWriterLevel(&archive, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, name := range sorted(files) {
		f := files[name]
		header := &tar.Header{
			Typeflag: tar.TypeReg, Format: tar.FormatUSTAR, Name: name, Mode: f.mode, Size: int64(len(f.content)), ModTime: modified,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
