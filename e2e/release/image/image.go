// Package image makes the image that the Dockerfile at the root describes, of static binaries and without a container engine.
package image

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// About is what an image says of itself. One binary and one About make one image, bit by bit.
type About struct {
	Created time.Time         // also of every file
	Labels  map[string]string // org.opencontainers.image.*: of the config, of the manifest and of an index
}

// Index returns the image of several platforms.
func Index(about About, images ...v1.Image) (v1.ImageIndex, error) {
	index := v1.ImageIndex(empty.Index)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	return mutate.Annotations(index, about.Labels).(v1.ImageIndex), nil
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

// New returns the image of a binary, for the platform that it is built for, as the Dockerfile says.
func New(binary string, about About) (image v1.Image, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot pack %q: %w", binary, err)
		}
	}()
	platform, err := platformOf(binary)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary) //nolint:gosec // The user names the file.
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: about.Created.UTC()}
	var files bytes.Buffer
	if err := Tar(&files, map[string]File{"classbind": {0o755, content}}, created.Time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: created}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, created
	config.Config = v1.Config{User: "65532:65532", Entrypoint: []string{"/classbind"}, Labels: about.Labels}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, about.Labels).(v1.Image), nil
}
