// Package output prints the reports of commands, for people or for programs.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/selector/truncate"
)

var trailingSpaces = regexp.MustCompile(` +\n`)

var formats = []string{"table", "json", "yaml"}

// Format in which a report is printed.
type Format string

// Add the flag to a command, with more formats than those of all commands, which the command adds to the help.
func (f *Format) Add(c *cobra.Command, more ...string) {
	all := slices.Concat(formats, more)
	c.Flags().StringVarP((*string)(f), "output", "o", formats[0], "`format`: table for people, json or yaml for programs")
	// It fails only for an unknown flag.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
}

// Validate the flag of a command with more formats.
func (f Format) Validate(more ...string) error {
	if all := slices.Concat(formats, more); !slices.Contains(all, string(f)) {
		return fmt.Errorf("--output=%q: must be %s or %s", string(f), strings.Join(all[:len(all)-1], ", "), all[len(all)-1])
	}
	return nil
}

// Print a report, which table returns for people. In the table, nothing is printed that a terminal
// would not show. That a line begins is for the table to decide: its values are truncate.Printable.
func (f Format) Print(out io.Writer, report any, table func() string) error {
	var text []byte
	var err error
	switch f {
	case "json":
		text, err = json.MarshalIndent(report, "", "  ")
		text = append(text, '\n')
		text = escape(text)
	case "yaml":
		if text, err = yaml.Marshal(report); err != nil || bytes.ContainsFunc(text, isHidden) { // It refuses or escapes only some.
			return Format("json").Print(out, report, table) // It is YAML, too.
		}
	default:
		text = []byte(truncate.PrintableLines(table()))
	}
	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	return nil
}

// Columns returns a line for each row, with aligned cells. The last ones may be empty.
func Columns(rows ...[]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = truncate.Printable(cell)
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // A strings.Builder takes everything.
	return trailingSpaces.ReplaceAllString(text.String(), "\n")
}

// Section prints an empty line, a header and at most limit rows, and how many more there are. Without rows, it prints nothing.
func Section(out *strings.Builder, rows [][]string, limit int) {
	if len(rows) < 2 {
		return
	}
	out.WriteString("\n" + Columns(rows[:min(limit+1, len(rows))]...))
	if more := len(rows) - 1 - limit; more > 0 {
		fmt.Fprintf(out, "  and %d more: see -o json\n", more)
	}
}

func isHidden(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }

// escape JSON, so that it has no characters that a terminal would not show: those that encoding/json leaves alone, such as U+202E.
func escape(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		if !isHidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}
