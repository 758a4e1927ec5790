package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/cmd/classbind/bind"
	"github.com/classbind/classbind/cmd/classbind/chooser"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/cmd/classbind/kinds"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/register"
	"github.com/classbind/classbind/cmd/classbind/serve"
	"github.com/classbind/classbind/cmd/classbind/setdefault"
	"github.com/classbind/classbind/cmd/classbind/simulate"
	"github.com/classbind/classbind/cmd/classbind/status"
	"github.com/classbind/classbind/cmd/classbind/ui"
	"github.com/classbind/classbind/selector/recovered"
)

// kubectl finds the command as a plugin, and the completion of its arguments, under these names: kubectl classbind.
const (
	plugin           = "kubectl-classbind"
	pluginCompletion = "kubectl_complete-classbind"
)

func init() { cobra.AddTemplateFunc("flagsOf", flagsOf) }

// newCommand returns the command for the program name that it was called by.
func newCommand(program string, args ...string) *cobra.Command {
	c := &cobra.Command{
		Use:   "classbind",
		Short: "Bind claims to classes at admission",
		Long: `classbind is an admission webhook server for Kubernetes. A claim, such as a
PostgreSQLInstance, a PersistentVolumeClaim or a Gateway, asks for a class. When
a claim is created, classbind chooses a class of any registered kind, and writes
the reference to it into the claim before the API server stores the claim.

The exit status of a command is 0 if all is well. It is 1 if the command found something,
such as a claim without a class, or something broken. It is 2 if the command could not
answer: its arguments are wrong, there is no cluster, or a right is missing.`,
		SilenceErrors: true, // main prints them.
		SilenceUsage:  true,
	}
	c.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	addGroups(c)
	c.AddCommand(newVersionCommand())
	level := 0
	for _, sub := range c.Commands() {
		if sub.Name() != serve.Name { // It has --log-level.
			sub.PersistentFlags().IntVarP(&level, "v", "v", 0, "`level` of the log on standard error, as in kubectl; 0 logs nothing")
		}
	}
	c.PersistentPreRun = func(sub *cobra.Command, _ []string) {
		if sub.Name() != serve.Name {
			setLogs(level, sub.ErrOrStderr())
		}
	}
	c.SetUsageTemplate(strings.Replace(c.UsageTemplate(), "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}",
		"{{flagsOf .LocalFlags false}}"+
			"{{with flagsOf .LocalFlags true}}\n\nFlags of kubectl, for the cluster and the user:\n{{.}}{{end}}", 1))
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
	case pluginCompletion:
		c.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args...))
	case plugin:
		const name = "kubectl classbind"
		c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
		nameExamples(c, c.Name(), name)
	}
	return c
}

// nameExamples has the examples of all commands below one call it by a new name.
func nameExamples(c *cobra.Command, was, name string) {
	for _, sub := range c.Commands() {
		sub.Example = strings.ReplaceAll(sub.Example, was+" "+sub.Name(), name+" "+sub.Name())
		nameExamples(sub, was+" "+sub.Name(), name+" "+sub.Name())
	}
}

// addGroups adds all commands but version, in groups.
func addGroups(c *cobra.Command) {
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Look at claims and classes:", []*cobra.Command{
			explain.NewCommand(), explain.NewClassesCommand(), status.NewCommand(), ui.NewCommand(),
		}},
		{"Prepare a change, and check it first:", []*cobra.Command{
			kinds.NewCommand(), register.NewCommand(), explain.NewCheckCommand(), simulate.NewCommand(), chooser.NewCommand(),
		}},
		{"Change the cluster:", []*cobra.Command{bind.NewCommand(), setdefault.NewCommand()}},
		{"Run the server:", []*cobra.Command{serve.NewCommand(ownBuild())}},
	} {
		c.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, sub := range group.commands {
			sub.GroupID = group.title
			c.AddCommand(sub)
		}
	}
}

// execute a command. A panic is an error.
func execute(ctx context.Context, c *cobra.Command) error {
	err := recovered.Do(func() error { return c.ExecuteContext(ctx) })
	if errors.Is(err, recovered.ErrPanic) {
		return fmt.Errorf("%w; this is a mistake in classbind: run the command again with -v=1, which prints where it is, "+
			"and report it at https://github.com/classbind/classbind/issues", err)
	}
	return err
}

// setLogs has a command that people run print errors alone. With a level, client-go and what has panicked log to a writer, too.
func setLogs(level int, to io.Writer) {
	ctrl.SetLogger(logr.Discard()) // Without a logger, controller-runtime prints a stack after 30 seconds.
	if level <= 0 {
		klog.SetLogger(logr.Discard()) // What fails is an error of the command, too.
		slog.SetDefault(slog.New(slog.DiscardHandler))
		return
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(fs)
	// By default, klog writes an error to standard error, too, and to the output once for each severity from info to error.
	_ = errors.Join(fs.Set("v", strconv.Itoa(level)), fs.Set("logtostderr", "false"), fs.Set("one_output", "true"),
		fs.Set("stderrthreshold", "FATAL")) // It knows all, and their types.
	klog.SetOutput(to)
	slog.SetDefault(slog.New(slog.NewTextHandler(to, nil)))
}

// A release sets both with -ldflags=-X: the go command reads a version from a tag, and a release can be built before its
// tag is set and without the history of git. They are empty in any other binary.
var releaseVersion, releaseCommit string

// flagsOf a command are those of its cluster, or all others, as its help shows them.
func flagsOf(all *pflag.FlagSet, ofCluster bool) string {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if _, is := f.Annotations[connect.ClusterFlag]; is == ofCluster {
			fs.AddFlag(f)
		}
	})
	return strings.TrimRight(fs.FlagUsages(), "\n")
}

// buildInfo is what "classbind version" prints with -o json or yaml.
type buildInfo struct {
	metav1.TypeMeta `json:",inline"`
	Version         string `json:"version"`
	Commit          string `json:"commit,omitempty"`
	Go              string `json:"go"`
	Platform        string `json:"platform"`
}

func newVersionCommand() *cobra.Command {
	var format output.Format
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of classbind and of the Go that built it",
		Args:  cobra.NoArgs,
		Example: `  # The version, for a program:
  classbind version -o json`,

		RunE: func(c *cobra.Command, _ []string) error {
			if err := format.Validate(); err != nil {
				return err
			}
			own := ownBuild()
			info := buildInfo{
				metav1.TypeMeta{APIVersion: "version.classbind.io/v1beta1", Kind: "Version"},
				own.Version, own.Commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH,
			}
			return format.Print(c.OutOrStdout(), info, func() string {
				return fmt.Sprintf("classbind %s %s %s\n", info.Version, info.Go, info.Platform)
			})
		},
	}
	format.Add(c)
	return c
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
