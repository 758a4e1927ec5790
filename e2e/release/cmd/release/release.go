package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/classbind/classbind/e2e/release/image"
)

// Where releases are published: the image without a tag, and the files below releases/download of the project.
const (
	imageName  = "ghcr.io/classbind/classbind"
	repository = "https://github.com/classbind/classbind"
)

// project is what releases are made of.
type project struct{ root string } // its folder, absolute

// platform that a release has a binary for.
type platform struct{ os, arch string }

// platforms of a release. The image has those of Linux.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// name of a file of a release: classbind_v0.1.0_linux_amd64.tar.gz.
func (s source) name(of platform, suffix string) string {
	return fmt.Sprintf("classbind_%s_%s_%s%s", s.version, of.os, of.arch, suffix)
}

// sums is the file with the checksums of all others, as sha256sum writes it.
const sums = "SHA256SUMS"

// release builds into a folder of its own first, so that dist/ is never half of one release and half of another.
func (p project) release(ctx context.Context, version string) error {
	if _, err := p.notes(version); err != nil {
		return err
	}
	s, err := p.source(ctx, version)
	if err != nil {
		return err
	}
	dist := filepath.Join(p.root, "dist")
	if err := replaceable(dist); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "classbind-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	b := &builder{project: p, source: s, work: work, files: map[string][]byte{}}
	for _, step := range []func(context.Context) error{b.install, b.compile, b.pack, b.manifests, b.chart, b.boms, b.krew, b.sums} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := b.write(dist); err != nil {
		return err
	}
	step("%s of the commit %s is in %s:\n%s", version, s.commit, dist, b.files[sums])
	return nil
}

// builder builds one release, file by file.
type builder struct {
	project
	source
	work   string            // folder for what is no part of the release
	digest v1.Hash           // of the image of all platforms
	files  map[string][]byte // of the release, by name
}

// step says what is done.
func step(format string, args ...any) { fmt.Printf("==> "+format+"\n", args...) }

// binary is where compile puts the binary of a platform.
func (b *builder) binary(of platform) string {
	return filepath.Join(b.work, of.os+"_"+of.arch, "classbind")
}

// compile the binaries. No setting of the machine that reaches the compiler may change them.
func (b *builder) compile(ctx context.Context) error {
	for i, of := range platforms {
		step("Compiling for %s/%s, %d of %d (a first time, for some minutes)", of.os, of.arch, i+1, len(platforms))
		env := append(os.Environ(),
			"GOOS="+of.os, "GOARCH="+of.arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0",
			"GOFLAGS=-buildvcs=false", "GOEXPERIMENT=", "GOFIPS140=off", "GODEBUG=", "GOWORK=off", "GO111MODULE=on")
		flags := fmt.Sprintf("-s -w -X main.releaseVersion=%s -X main.releaseCommit=%s", b.version, b.commit)
		build := []string{"build", "-trimpath", "-mod=readonly", "-ldflags", flags, "-o", b.binary(of), "./cmd/classbind"}
		if _, err := output(ctx, b.root, env, "go", build...); err != nil {
			return fmt.Errorf("cannot compile for %s/%s: %w", of.os, of.arch, err)
		}
	}
	return nil
}

// pack the binaries, into archives for people and into an image for clusters.
func (b *builder) pack(context.Context) error {
	step("Packing the archives and the image")
	about := image.About{Created: b.time, Labels: b.labels()}
	var images []v1.Image
	for _, of := range platforms {
		archive, err := b.archive(of)
		if err != nil {
			return fmt.Errorf("cannot pack the binary of %s/%s: %w", of.os, of.arch, err)
		}
		b.files[b.name(of, ".tar.gz")] = archive
		if of.os != "linux" {
			continue
		}
		i, err := image.New(b.binary(of), about)
		if err != nil {
			return err
		}
		images = append(images, i)
	}
	index, err := image.Index(about, images...)
	if err != nil {
		return fmt.Errorf("cannot put the images of all platforms together: %w", err)
	}
	if b.digest, err = index.Digest(); err != nil {
		return err
	}
	archive, err := image.Archive(imageName+":"+b.version, index)
	if err != nil {
		return err
	}
	b.files["classbind_"+b.version+"_image.tar"] = archive
	return nil
}

// labels of the image: https://specs.opencontainers.org/image-spec/annotations/
func (b *builder) labels() map[string]string {
	labels := map[string]string{
		"title":         "classbind",
		"description":   description,
		"version":       b.version,
		"revision":      b.commit,
		"created":       b.time.Format("2006-01-02T15:04:05Z"),
		"licenses":      license,
		"source":        repository,
		"url":           repository,
		"documentation": repository + "/blob/" + b.version + "/README.md",
	}
	all := map[string]string{}
	for name, value := range labels {
		all["org.opencontainers.image."+name] = value
	}
	return all
}

const (
	description = "Bind claims to classes at admission"
	license     = "Apache-2.0"
)

func (b *builder) sums(context.Context) error {
	var text bytes.Buffer
	for _, name := range sorted(b.files) {
		_, _ = fmt.Fprintf(&text, "%s  %s\n", checksum(b.files[name]), name)
	}
	b.files[sums] = text.Bytes()
	return nil
}

func checksum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// write the release where an older one was.
func (b *builder) write(dist string) error {
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	if err := os.MkdirAll(dist, 0o755); err != nil { //nolint:gosec // Others may read a release.
		return err
	}
	for _, name := range sorted(b.files) {
		if err := os.WriteFile(filepath.Join(dist, name), b.files[name], 0o644); err != nil { //nolint:gosec // As above.
			return err
		}
	}
	return nil
}

// replaceable refuses a folder that no release has written.
func replaceable(dist string) error {
	entries, err := os.ReadDir(dist)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dist, sums)); err != nil {
		return fmt.Errorf("%s has files that are no release: move them away; a release replaces the folder", dist)
	}
	return nil
}

// output of a command. An error has what it wrote.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	var out, errOut bytes.Buffer
	c := exec.CommandContext(ctx, name, args...) //nolint:gosec // The callers choose the command.
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, env, &out, &errOut
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}
