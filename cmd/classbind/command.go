package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/cmd/classbind/setdefault"
)

// The names under which kubectl finds the command as a plugin, and the
// completion of its arguments: kubectl classbind.
const (
	plugin           = "kubectl-classbind"
	pluginCompletion = "kubectl_complete-classbind"
)

func newCommand() *cobra.Command { return newCommandAs(os.Args[0], os.Args[1:]) }

// newCommandAs is the command under the name by which it was called.
func newCommandAs(program string, args []string) *cobra.Command {
	c := newRootCommand()
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
	case pluginCompletion:
		c.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args...))
	case plugin:
		const name = "kubectl classbind"
		c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
		for _, sub := range c.Commands() {
			sub.Example = strings.ReplaceAll(sub.Example, c.Name()+" "+sub.Name(), name+" "+sub.Name())
		}
	}
	return c
}

// exitStatus of the program for an error.
func exitStatus(err error) int {
	if e := (*explain.ExitError)(nil); errors.As(err, &e) {
		return e.Status
	}
	return 1
}

func newRootCommand() *cobra.Command {
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
	c.AddCommand(newServeCommand(), explain.NewCommand(), setdefault.NewCommand(), newVersionCommand())
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
