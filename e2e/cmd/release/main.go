// Command release builds what make release puts into dist/:
//
//	release build VERSION    build the release of the commit that is checked out
//	release notes VERSION    print what the changelog says of it
//
// One commit, one VERSION and one toolchain give the same bytes, so make release chooses the toolchain.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:gocritic // The process ends, and so does stop's reason.
	}
}

func newCommand() *cobra.Command {
	p := project{image: "ghcr.io/classbind/classbind", repository: "https://github.com/classbind/classbind"}
	c := &cobra.Command{Use: "release", SilenceErrors: true, SilenceUsage: true}
	flags := c.PersistentFlags()
	flags.StringVar(&p.root, "root", "..", "`folder` of the project")
	flags.StringVar(&p.image, "image", p.image, "`name` of the image, without a tag")
	flags.StringVar(&p.repository, "repository", p.repository, "`address` of the project; the files are below its releases/download")
	command := func(use, short string, run func(*cobra.Command, string) error) {
		c.AddCommand(&cobra.Command{
			Use: use + " VERSION", Short: short, Args: cobra.MaximumNArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				version := ""
				if len(args) > 0 {
					version = args[0]
				}
				if err := checkVersion(version); err != nil {
					return err
				}
				root, err := filepath.Abs(p.root)
				if err != nil {
					return err
				}
				p.root = root
				return run(c, version)
			},
		})
	}
	command("build", "Build a release into dist/", func(c *cobra.Command, version string) error {
		return p.release(c.Context(), version, c.OutOrStdout())
	})
	command("notes", "Print what the changelog says of a release", func(c *cobra.Command, version string) error {
		notes, err := p.notes(version)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), notes)
		return err
	})
	return c
}
