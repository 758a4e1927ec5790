// Command image packs a static binary as the image that the Dockerfile at the
// root describes, without a container engine, into an OCI archive:
//
//	image --output FILE REF BINARY
//
// kind load image-archive, podman load and ctr images import read it.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"

	"github.com/classbind/classbind/e2e/command"
	"github.com/classbind/classbind/e2e/release/image"
)

func main() {
	output := flag.String("output", "", "`file` to write")
	flag.Parse()
	command.Main(func(context.Context) error {
		if *output == "" || flag.NArg() != 2 {
			return errors.New("usage: image --output FILE REF BINARY")
		}
		content, err := image.New(flag.Arg(1), image.About{Created: time.Unix(0, 0)})
		if err != nil {
			return err
		}
		archive, err := image.Archive(flag.Arg(0), content)
		if err != nil {
			return err
		}
		return os.WriteFile(*output, archive, 0o644) //nolint:gosec // Others may read the image.
	})
}
