// Package kinds is the command that lists the presets of deploy/kinds, and prints them
// for kubectl. preset reads them.
package kinds

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

const (
	long = `List the presets, which register kinds that people run, or print some of them for
kubectl. A preset has ClaimKinds, ClassKinds, and the ClusterRole that lets classbind
read the classes. It is a folder of deploy/kinds, whose README says what is bound,
what is not, and why. No cluster is asked.

With --examples, the example of each preset is printed instead: classes, objects that
claims name, and claims that get the classes. Apply it when the preset is ready, and
where nobody is harmed: its classes name drivers and controllers that do not exist, and
some are defaults.`

	usage = `  # What is there?
  classbind kinds

  # Have Gateways bound:
  classbind kinds gateway-api | kubectl apply -f -

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
			return run(c.OutOrStdout(), names, example)
		},
	}
	c.Flags().BoolVar(&example, "examples", false, "print the examples, such as classes and claims, instead of the registrations")
	return c
}

func run(out io.Writer, names []string, example bool) error {
	presets, err := readPresets()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return printed(list(out, presets))
	}
	if presets, err = find(presets, names); err != nil {
		return err
	}
	text, err := manifestOf(presets, example)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return printed(err)
}

func printed(err error) error {
	if err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	return nil
}

func list(out io.Writer, presets []preset) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tSUMMARY\tCLAIM KINDS")
	for _, p := range presets {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", p.name, p.summary, strings.Join(p.claimKinds, ","))
	}
	return w.Flush()
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
