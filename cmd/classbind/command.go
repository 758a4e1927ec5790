package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/classbind/classbind/cmd/classbind/setdefault"
)

func newCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "classbind",
		Short: "Bind claims to classes at admission",
		Long: `classbind is an admission webhook server for Kubernetes. When a claim (a
PostgreSQLInstance, a PersistentVolumeClaim, a Gateway) is created, it chooses
a class among those of all registered kinds and writes the claim's class
reference before the claim is stored.`,
		SilenceErrors: true, // main prints them.
		SilenceUsage:  true,
	}
	c.AddCommand(newServeCommand(), setdefault.NewCommand(), newVersionCommand())
	return c
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of classbind and of the Go that built it",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "classbind %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version is the module's, as the go command stamped it: a release's tag, or a
// pseudo-version of the commit that was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
