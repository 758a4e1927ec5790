// Package output prints the reports of commands, for people or for programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

var formats = []string{"table", "json", "yaml"}

// Format in which a report is printed.
type Format string

// Add the flag to those of a command.
func (f *Format) Add(fs *pflag.FlagSet) {
	fs.StringVarP((*string)(f), "output", "o", formats[0], "`format`: table for people, json or yaml for programs")
}

// Complete is for the shell.
func Complete(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)(c, args, toComplete)
}

// Validate the flag.
func (f Format) Validate() error {
	if !slices.Contains(formats, string(f)) {
		return fmt.Errorf("--output=%q: must be table, json or yaml", string(f))
	}
	return nil
}

// Print a report, which table writes for people.
func (f Format) Print(out io.Writer, report any, table func() ([]byte, error)) error {
	var text []byte
	var err error
	switch f {
	case "json":
		text, err = json.MarshalIndent(report, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(report)
	default:
		text, err = table()
	}
	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	return nil
}
