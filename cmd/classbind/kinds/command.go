// Package kinds is the command that lists the presets of deploy/kinds, and prints them
// for kubectl. preset reads them.
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

const (
	long = `List the presets, which register kinds that people run, or print some of them for
kubectl. A preset has ClaimKinds, ClassKinds, and the ClusterRole that lets classbind
read the classes. It is a folder of deploy/kinds, whose README says what is bound,
what is not, and why. No cluster is asked.

A preset has only what is its own. Some need another one beside it, with the ClassKind
of classes that several presets use: the column NEEDS has it, and a note on standard
error. Apply them in any order. When you delete one, delete what it needs only after
all others that need it.

With --examples, the example of each preset is printed instead: classes, objects that
claims name, and claims that get the classes. Apply it when the preset is ready, and
where nobody is harmed: its classes name drivers and controllers that do not exist, and
some are defaults.`

	usage = `  # What is there?
  classbind kinds

  # Have Gateways bound:
  classbind kinds gateway-api | kubectl apply -f -

  # Two presets that use the same classes, and what both need:
  classbind kinds kueue-queues kueue jobset | kubectl apply -f -

  # Have Jobs bound no longer. JobSets still are:
  classbind kinds kueue | kubectl delete -f -

  # See classes and claims to try it with:
  classbind kinds gateway-api --examples`
)

// NewCommand returns the command kinds.
func NewCommand() *cobra.Command {
	example := false
	c := &cobra.Command{
		Use:               "kinds [NAME...]",
		Short:             "List or print presets, which register kinds that people run",
		Long:              long,
		Example:           usage,
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
