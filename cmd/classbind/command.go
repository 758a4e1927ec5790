package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/classbind/classbind/cmd/classbind/bind"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/cmd/classbind/kinds"
	"github.com/classbind/classbind/cmd/classbind/register"
	"github.com/classbind/classbind/cmd/classbind/setdefault"
	"github.com/classbind/classbind/cmd/classbind/simulate"
	"github.com/classbind/classbind/cmd/classbind/status"
	"github.com/classbind/classbind/cmd/classbind/ui"
)

// kubectl finds the command as a plugin, and the completion of its arguments, under these names: kubectl classbind.
const (
	plugin           = "kubectl-classbind"
	pluginCompletion = "kubectl_complete-classbind"
)

func newCommand() *cobra.Command { return newCommandAs(os.Args[0], os.Args[1:]) }

// newCommandAs returns the command for the program name that it was called by.
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

// exitStatus returns the exit status of the program for an error.
func exitStatus(err error) int {
	// cobra has no type for it. The status is not 1, by which explain says that a claim has no class.
	if strings.HasPrefix(err.Error(), "unknown command ") {
		return 2
	}
	if e := (*exit.Error)(nil); errors.As(err, &e) {
		return e.Status
	}
	return 1
}

func newRootCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "classbind",
		Short: "Bind claims to classes at admission",
		Long: `classbind is an admission webhook server for Kubernetes. A claim, such as a
PostgreSQLInstance, a PersistentVolumeClaim or a Gateway, asks for a class. When
a claim is created, classbind chooses a class of any registered kind, and writes
the reference to it into the claim before the API server stores the claim.`,
		SilenceErrors: true, // main prints them.
		SilenceUsage:  true,
	}
	c.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	c.AddCommand(
		newServeCommand(), bind.NewCommand(), explain.NewCheckCommand(), explain.NewClassesCommand(), explain.NewCommand(),
		kinds.NewCommand(), register.NewCommand(), setdefault.NewCommand(), simulate.NewCommand(), status.NewCommand(),
		ui.NewCommand(), newVersionCommand())
	return c
}
