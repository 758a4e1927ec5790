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
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/classbind/classbind/e2e/command"
)

func main() {
	c := &cobra.Command{Use: "release", SilenceErrors: true, SilenceUsage: true}
	for use, run := range map[string]func(ctx context.Context, p project, version string) error{
		"build": func(ctx context.Context, p project, version string) error { return p.release(ctx, version) },
		"notes": func(_ context.Context, p project, version string) error {
			notes, err := p.notes(version)
			if err == nil {
				fmt.Println(notes)
			}
			return err
		},
	} {
		c.AddCommand(&cobra.Command{Use: use + " VERSION", Args: cobra.MaximumNArgs(1), RunE: func(c *cobra.Command, args []string) error {
			version := strings.Join(args, "")
			if err := checkVersion(version); err != nil {
				return err
			}
			root, err := filepath.Abs("..") // The working directory is e2e.
			if err != nil {
				return err
			}
			return run(c.Context(), project{root}, version)
		}})
	}
	command.Main(c.ExecuteContext)
}
