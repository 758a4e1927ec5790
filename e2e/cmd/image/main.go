// Command image packs a static binary as the image that the Dockerfile at the
// root describes, without a container engine, into an OCI archive:
//
//	image --output FILE REF BINARY
//
// kind load image-archive, podman load and ctr images import read it.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/classbind/classbind/e2e/image"
)

func main() {
	output := flag.String("output", "", "`file` to write")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: image --output FILE REF BINARY")
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

func run(output, ref, binary string) error {
	content, err := image.New(binary, image.About{})
	if err != nil {
		return err
	}
	archive, err := image.Archive(ref, content)
	if err != nil {
		return err
	}
	return os.WriteFile(output, archive, 0o644) //nolint:gosec // Others may read the image.
}
