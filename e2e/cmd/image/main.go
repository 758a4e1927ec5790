// Command image packs a static binary as the image that the Dockerfile at the
// root describes, without a container engine, into an OCI archive:
//
//	image --output FILE REF SOURCE
//
// kind load image-archive, podman load and ctr images import read it. A SOURCE
// that is an OCI archive already, as make release writes it, is checked and
// gets another name.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/classbind/classbind/e2e/image"
)

func main() {
	output := flag.String("output", "", "`file` to write")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: image --output FILE REF SOURCE")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *output == "" || flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*output, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(output, ref, source string) error {
	dir, err := os.MkdirTemp("", "classbind-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	content, err := imageOf(source, dir)
	if err != nil {
		return err
	}
	archive, err := image.Archive(ref, content)
	if err != nil {
		return err
	}
	return os.WriteFile(output, archive, 0o644) //nolint:gosec // Others may read the image.
}

func imageOf(source, dir string) (mutate.Appendable, error) {
	archived, err := image.IsArchive(source)
	if err != nil {
		return nil, fmt.Errorf("cannot read the image's source: %w; make build or make release makes one", err)
	}
	if archived {
		return image.Read(source, dir)
	}
	return image.New(source, image.About{})
}
