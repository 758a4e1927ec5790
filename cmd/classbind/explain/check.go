package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/world"
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

In a folder, check skips files that a kustomization.yaml uses as patches.`

	checkExamples = `  # Check all manifests in a folder:
  classbind check -f deploy/

  # In a GitHub workflow, with each finding at its line:
  classbind check -f deploy/ -o github`
)

// checkFormats of -o.
var checkFormats = []string{"text", "json", "github"}

// checkOptions are the flags of check.
type checkOptions struct {
	files  []string
	output string
	strict bool
	rules  bool
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
	fs.StringVarP(&o.output, "output", "o", checkFormats[0], "`format`: text for people, json for programs, github for a workflow's log")
	fs.BoolVar(&o.strict, "strict", false, "count warnings as errors")
	fs.BoolVar(&o.rules, "rules", false, "list the rules, and check nothing")
	_ = c.MarkFlagFilename("filename", world.Extensions...) // It fails only for an unknown flag, as the next one.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(checkFormats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (o *checkOptions) validate() error {
	var errs []error
	if len(o.files) == 0 && !o.rules {
		errs = append(errs, errors.New("--filename: name the files to check, such as -f deploy/, or -f - for standard input"))
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
	objects, err := world.ReadManifests(ctx, in, progress, o.files)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(objects, func(d world.Document) bool { return d.GroupVersionKind().Group == v1beta1.GroupVersion.Group }) {
		_, _ = fmt.Fprintln(progress, "note: the files have neither a ClaimKind nor a ClassKind")
	}
	findings, err := lint(ctx, objects)
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

func (o *checkOptions) format(findings []Finding) (string, error) {
	var text strings.Builder
	switch o.output {
	case "json":
		report := &CheckReport{metav1.TypeMeta{APIVersion: CheckVersion, Kind: "Report"}, append([]Finding{}, findings...)}
		err := output.Format(o.output).Print(&text, report, nil)
		return text.String(), err
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

// data and property escape a message, and a property, of a workflow command:
// https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
var (
	data     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
