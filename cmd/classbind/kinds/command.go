// Package kinds is the command that lists the presets of deploy/kinds, and prints them for kubectl. preset reads them.
package kinds

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/classbind/classbind/cmd/classbind/output"
)

// NewCommand returns the command kinds.
func NewCommand() *cobra.Command {
	example := false
	c := &cobra.Command{
		Use:   "kinds [NAME...]",
		Short: "List or print presets, which register the kinds of known projects",
		Long: `List the presets, which register the kinds of known projects, or print some of them for
kubectl. A preset has ClaimKinds, ClassKinds, and the ClusterRole that lets classbind
read the classes. It is a folder of deploy/kinds, whose README says what is bound,
what is not, and why. The command needs no cluster.

If several presets use the same classes, the ClassKind is in a separate preset. The
column NEEDS and a note on standard error name it. Apply presets in any order. Delete
a preset that others need after you have deleted all of these.

With --examples, the command prints the example of each preset instead: classes, objects
that claims name, and claims that get the classes. Apply an example when the preset is
ready, in a cluster for tests: its classes name drivers and controllers that do not
exist, and some are defaults.`,
		Example: `  # Which presets are there?
  classbind kinds

  # Bind Gateways:
  classbind kinds gateway-api | kubectl apply -f -

  # Two presets that use the same classes, and what both need:
  classbind kinds kueue-queues kueue jobset | kubectl apply -f -

  # Stop binding Jobs, but not JobSets:
  classbind kinds kueue | kubectl delete -f -

  # Print classes and claims to try it out:
  classbind kinds gateway-api --examples`,
		ValidArgsFunction: complete,
		RunE: func(c *cobra.Command, names []string) error {
			if example && len(names) == 0 {
				return errors.New("--examples: name a preset, such as classbind kinds gateway-api --examples")
			}
			return run(c.OutOrStdout(), c.ErrOrStderr(), names, example)
		},
	}
	c.Flags().BoolVar(&example, "examples", false, "print the examples, such as classes and claims, instead of the registrations")
	return c
}

func run(out, progress io.Writer, names []string, example bool) error {
	presets, err := readPresets()
	if err != nil {
		return err
	}
	text := []byte(list(presets))
	if len(names) > 0 {
		if presets, err = find(presets, names); err != nil {
			return err
		}
		if text, err = manifestOf(presets, example); err != nil {
			return err
		}
		_, _ = io.WriteString(progress, notes(presets))
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	return nil
}

func list(presets []preset) string {
	rows := [][]string{{"NAME", "SUMMARY", "NEEDS", "CLAIM KINDS"}}
	for _, p := range presets {
		rows = append(rows, []string{p.name, p.summary, strings.Join(p.needs, ","), strings.Join(p.claimKinds, ",")})
	}
	return output.Columns(rows...)
}

// complete offers the presets that are not named yet.
func complete(_ *cobra.Command, named []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	presets, err := readPresets()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var left []cobra.Completion
	for _, p := range presets {
		if !slices.Contains(named, p.name) {
			left = append(left, cobra.CompletionWithDesc(p.name, p.summary))
		}
	}
	return left, cobra.ShellCompDirectiveNoFileComp
}
