package explain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/selector/truncate"
)

// CheckVersion is the version of the reports of check, as Version is of those of explain.
const CheckVersion = "check.classbind.io/v1beta1"

// CheckReport is what "classbind check" prints with -o json.
type CheckReport struct {
	metav1.TypeMeta `json:",inline"`
	Findings        []Finding `json:"findings"` // Findings are sorted by file and line.
}

const (
	checkLong = `Check registrations and classes in files, without a cluster: for a pipeline, or
before a commit.

check compares registrations with the CRDs in the files, and with each other. It finds
what the API server would refuse, and what the status would report in a cluster. A kind
whose API group has no CRD in the files counts as installed. --rules lists all rules.

The exit status is 0 if there is no error, 1 if there is one, and 2 if the files
cannot be read. With --strict, a warning counts as an error.

--fix corrects a mistake in the file if there is only one possible fix, and if that
causes no new finding. In a folder, check skips files that a kustomization.yaml uses as
patches.`

	checkExamples = `  # Check all manifests in a folder:
  classbind check -f deploy/

  # In a GitHub workflow, with each finding at its line:
  classbind check -f deploy/ -o github

  # Fix mistakes with only one possible fix:
  classbind check -f deploy/ --fix`
)

// checkFormats of -o.
var checkFormats = []string{"text", "json", "sarif", "github"}

// checkOptions are the flags of check.
type checkOptions struct {
	files  []string
	output string
	strict bool
	rules  bool
	fix    bool
}

// NewCheckCommand returns the command check.
func NewCheckCommand() *cobra.Command {
	o := &checkOptions{}
	c := &cobra.Command{
		Use: "check -f FILES", Short: "Check registrations and classes in files", Args: cobra.NoArgs,
		Long: checkLong, Example: checkExamples,
	}
	exit.Run(c, func([]string) error {
		if err := o.validate(); err != nil {
			return err
		}
		return o.run(c.Context(), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
	})
	fs := c.Flags()
	fs.StringArrayVarP(&o.files, "filename", "f", nil, "`file`, or folder with all folders in it; - is standard input; may be repeated")
	fs.StringVarP(&o.output, "output", "o", checkFormats[0], "`format`: text for people, json, sarif, or github for the log of a workflow")
	fs.BoolVar(&o.strict, "strict", false, "count warnings as errors")
	fs.BoolVar(&o.fix, "fix", false, "correct mistakes with only one possible fix in the files, and print the rest")
	fs.BoolVar(&o.rules, "rules", false, "list the rules, and check nothing")
	_ = c.MarkFlagFilename("filename", extensions...) // It fails only for an unknown flag, as the next one.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(checkFormats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (o *checkOptions) validate() error {
	var errs []error
	if len(o.files) == 0 && !o.rules {
		errs = append(errs, errors.New("--filename: name the files to check, such as -f deploy/, or -f - for standard input"))
	}
	if o.fix && slices.Contains(o.files, stdin) {
		errs = append(errs, errors.New("--fix: cannot write standard input: name files or folders"))
	}
	if !slices.Contains(checkFormats, o.output) {
		errs = append(errs, fmt.Errorf("--output=%q: must be one of %s", o.output, strings.Join(checkFormats, ", ")))
	}
	return errors.Join(errs...)
}

func (o *checkOptions) run(ctx context.Context, in io.Reader, out, progress io.Writer) error {
	if o.rules {
		var err error
		for _, r := range Rules {
			_, failed := fmt.Fprintf(out, "%-22s %-9s %s\n", r.Name, r.Severity, r.Text)
			err = cmp.Or(err, failed)
		}
		return err
	}
	objects, err := ReadManifests(ctx, in, progress, o.files)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(objects, func(d document) bool { return d.GroupVersionKind().Group == v1beta1.GroupVersion.Group }) {
		_, _ = fmt.Fprintln(progress, "note: the files have neither a ClaimKind nor a ClassKind")
	}
	findings, err := lint(ctx, objects)
	if err == nil && o.fix {
		findings, err = o.fixAll(ctx, findings, progress)
	}
	if err != nil {
		return err
	}
	text, err := o.format(findings)
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	if err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	mistakes := 0
	for _, f := range findings {
		if f.Severity == Mistake || o.strict && f.Severity == Doubt {
			mistakes++
		}
	}
	if mistakes > 0 {
		return &exit.Error{Status: exit.Broken, Err: fmt.Errorf("mistakes: %d", mistakes)}
	}
	return nil
}

// format the findings.
func (o *checkOptions) format(findings []Finding) (string, error) {
	var text strings.Builder
	switch o.output {
	case "json":
		return reportText(&CheckReport{metav1.TypeMeta{APIVersion: CheckVersion, Kind: "Report"}, append([]Finding{}, findings...)})
	case "sarif":
		return reportText(sarif(findings))
	case "github":
		for _, f := range findings {
			level := strings.Replace(string(f.Severity), string(Remark), "notice", 1)
			fmt.Fprintf(&text, "::%s file=%s,line=%d,title=%s::%s\n", level, property.Replace(truncate.Printable(f.File)), f.Line, f.Rule,
				data.Replace(truncate.Printable(f.Object+": "+f.Message)))
		}
	default:
		for _, f := range findings {
			fmt.Fprintf(&text, "%s:%d: %s: %s: %s (%s)\n", truncate.Printable(f.File), f.Line, f.Severity,
				truncate.Printable(f.Object), truncate.Printable(f.Message), f.Rule)
		}
	}
	return text.String(), nil
}

func reportText(report any) (string, error) {
	text, err := json.MarshalIndent(report, "", "  ")
	return string(output.Escape(text)) + "\n", err
}

// data and property escape a message, and a property, of a workflow command:
// https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
var (
	data     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// sarif is the findings in the Static Analysis Results Interchange Format, version 2.1.0:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
func sarif(findings []Finding) any {
	type object = map[string]any
	described, results := []object{}, []object{}
	for _, r := range Rules {
		described = append(described, object{
			"id": r.Name, "shortDescription": object{"text": r.Text}, "defaultConfiguration": object{"level": r.Severity},
		})
	}
	for _, f := range findings {
		file := object{"uri": f.File}
		result := object{
			"ruleId": f.Rule, "level": f.Severity, "message": object{"text": f.Object + ": " + f.Message},
			"locations": []object{{"physicalLocation": object{"artifactLocation": file, "region": object{"startLine": f.Line}}}},
		}
		if fix := f.Fix; fix != (Fix{}) {
			end := fix.Column + utf8.RuneCountInString(fix.Old)
			result["fixes"] = []object{{
				"description": object{"text": fmt.Sprintf("Replace %q with %q.", fix.Old, fix.New)},
				"artifactChanges": []object{{"artifactLocation": file, "replacements": []object{{
					"deletedRegion":   object{"startLine": fix.Line, "startColumn": fix.Column, "endColumn": end},
					"insertedContent": object{"text": fix.New},
				}}}},
			}}
		}
		results = append(results, result)
	}
	return object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{
			"tool":       object{"driver": object{"name": "classbind check", "rules": described}},
			"columnKind": "unicodeCodePoints", "results": results,
		}},
	}
}

// Fix replaces a part of one line. It keeps comments and formatting, which YAML that is written anew does not.
type Fix struct {
	// Line and Column, in characters, count from 1.
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Old    string `json:"old"`
	New    string `json:"new"`
}

// fix the last finding, if its document matches a pattern in one place: the group of the pattern is replaced.
func (l *linter) fix(d *document, pattern, replacement string) {
	matches := regexp.MustCompile("(?m)"+pattern).FindAllSubmatchIndex(d.text, 2)
	if len(matches) != 1 {
		return
	}
	before, old := d.text[:matches[0][2]], d.text[matches[0][2]:matches[0][3]]
	l.findings[len(l.findings)-1].Fix = Fix{
		Line:   d.line + bytes.Count(before, []byte("\n")),
		Column: utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1,
		Old:    string(old), New: replacement,
	}
}

// fixMark fixes a mark such as "True", of which only the case is wrong.
func (l *linter) fixMark(d *document, err *field.Error) {
	_, key, _ := strings.Cut(strings.TrimSuffix(err.Field, "]"), "metadata.annotations[")
	value, _ := err.BadValue.(string)
	lower := strings.ToLower(value)
	if key != "" && (lower == "true" || lower == "false") {
		l.fix(d, regexp.QuoteMeta(key)+`["']?:\s*["'](`+regexp.QuoteMeta(value)+`)["']`, lower)
	}
}

// in returns a text with the fix, and false if the text is not the one that was checked.
func (f Fix) in(text []byte) ([]byte, bool) {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if f.Line < 1 || f.Line > len(lines) { // There is no fix, or no such line.
		return nil, false
	}
	line := []rune(string(lines[f.Line-1]))
	at := min(f.Column-1, len(line))
	after, ok := strings.CutPrefix(string(line[at:]), f.Old)
	lines[f.Line-1] = []byte(string(line[:at]) + f.New + after)
	return bytes.Join(lines, nil), ok
}

// fixAll writes the fixes of each file, if they mend all that they are for, and break nothing else. It returns the findings that remain.
func (o *checkOptions) fixAll(ctx context.Context, findings []Finding, progress io.Writer) ([]Finding, error) {
	var files []string
	for _, f := range findings {
		if f.Fix != (Fix{}) && !slices.Contains(files, f.File) {
			files = append(files, f.File)
		}
	}
	for _, file := range files {
		text, err := readRegular(ctx, file, os.Stat, os.Open)
		if err != nil {
			return nil, fmt.Errorf("cannot fix: %w", err)
		}
		var fixes []Finding
		for _, f := range slices.Backward(findings) { // So a fix does not move another of its line.
			if fixed, ok := f.Fix.in(text); ok && f.File == file {
				text, fixes = fixed, append(fixes, f)
			}
		}
		reader := newFileReader(nil, io.Discard)
		reader.instead = map[string][]byte{file: text}
		objects, err := reader.readAll(ctx, o.files)
		if err != nil { // The fixed file cannot be read.
			continue
		}
		left, err := lint(ctx, objects)
		if err != nil {
			return nil, err
		}
		if !sets.New(findings...).HasAll(left...) || sets.New(left...).HasAny(fixes...) {
			continue
		}
		if err := replaceFile(file, text); err != nil {
			return nil, fmt.Errorf("cannot fix %q: %w", file, err)
		}
		findings = left
		for _, f := range slices.Backward(fixes) {
			_, _ = fmt.Fprintf(progress, "%s:%d: fixed: %q is %q now (%s)\n",
				truncate.Printable(f.File), f.Fix.Line, f.Fix.Old, f.Fix.New, f.Rule)
		}
	}
	return findings, nil
}

// replaceFile replaces a file at once, and keeps its mode. A link stays a link.
func replaceFile(file string, text []byte) error {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(file), ".classbind-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }() // It is gone already where all went well.
	_, err = next.Write(text)
	if err = errors.Join(err, next.Chmod(info.Mode()), next.Close()); err == nil {
		err = os.Rename(next.Name(), file)
	}
	return err
}
