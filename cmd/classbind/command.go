package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/cmd/classbind/bind"
	"github.com/classbind/classbind/cmd/classbind/chooser"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/cmd/classbind/kinds"
	"github.com/classbind/classbind/cmd/classbind/register"
	"github.com/classbind/classbind/cmd/classbind/serve"
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

// newCommand returns the command for the program name that it was called by.
func newCommand(program string, args ...string) *cobra.Command {
	c := &cobra.Command{
		Use:   "classbind",
		Short: "Bind claims to classes at admission",
		Long: `classbind is an admission webhook server for Kubernetes. A claim, such as a
PostgreSQLInstance, a PersistentVolumeClaim or a Gateway, asks for a class. When
a claim is created, classbind chooses a class of any registered kind, and writes
the reference to it into the claim before the API server stores the claim.`,
		SilenceErrors: true, // main prints them.
		SilenceUsage:  true,
		PersistentPreRun: func(c *cobra.Command, _ []string) { // Else, controller-runtime prints a trace after 30 seconds.
			if c.Name() != serve.Name {
				ctrl.SetLogger(logr.Discard()) // What fails is an error of the command, too.
			}
		},
	}
	c.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	c.AddCommand(
		serve.NewCommand(ownBuild()), bind.NewCommand(), chooser.NewCommand(), explain.NewCheckCommand(), explain.NewClassesCommand(),
		explain.NewCommand(), kinds.NewCommand(), register.NewCommand(), setdefault.NewCommand(), simulate.NewCommand(), status.NewCommand(),
		ui.NewCommand(), newVersionCommand())
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

func exitStatus(err error) int {
	// cobra has no type for it. The status is not 1, by which explain reports that a claim has no class.
	if strings.HasPrefix(err.Error(), "unknown command ") {
		return 2
	}
	if e := (*exit.Error)(nil); errors.As(err, &e) {
		return e.Status
	}
	return 1
}

// A release sets both with -ldflags=-X: the go command reads a version from a tag, and a release can be built before its
// tag is set and without the history of git. They are empty in any other binary.
var releaseVersion, releaseCommit string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of classbind and of the Go that built it",
		Args:  cobra.NoArgs,

		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "classbind %s %s %s/%s\n",
				ownBuild().Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

func ownBuild() serve.Build {
	info, _ := debug.ReadBuildInfo()
	return buildOf(releaseVersion, releaseCommit, info)
}

// buildOf a release, or else of what the go command stamped, if it stamped anything: the tag of the commit or a pseudo-version of it.
func buildOf(version, commit string, info *debug.BuildInfo) serve.Build {
	info = cmp.Or(info, &debug.BuildInfo{})
	b := serve.Build{Version: cmp.Or(version, info.Main.Version, "(devel)"), Commit: commit}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			b.Commit = cmp.Or(commit, setting.Value)
		}
	}
	return b
}
