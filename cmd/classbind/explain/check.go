package explain

import (
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

// CheckReport is what "classbind check" prints with -o json or yaml.
type CheckReport struct {
	metav1.TypeMeta `json:",inline"`
	Findings        []Finding `json:"findings"` // Findings are sorted by file and line.
}

// RulesReport is what "classbind check --rules" prints with -o json or yaml.
type RulesReport struct {
	metav1.TypeMeta `json:",inline"`
	Rules           []Rule `json:"rules"`
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

	checkExamples = `  # Check all manifests in a folder, and in the folders in it:
  classbind check -R -f deploy/

  # In a GitHub workflow, with each finding at its line:
  classbind check -R -f deploy/ -o github`
)

// github is the format of a workflow's log.
const github = "github"

// checkOptions are the flags of check.
type checkOptions struct {
	files     []string
	recursive bool
	output    output.Format
	strict    bool
	rules     bool
}

// NewCheckCommand returns the command check.
func NewCheckCommand() *cobra.Command {
	o := &checkOptions{}
	c := &cobra.Command{
		Use: "check -f FILES", Short: "Check registrations and classes in files", Args: cobra.NoArgs,
		Long: checkLong, Example: checkExamples,
	}
	c.RunE = func(*cobra.Command, []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		return o.run(c.Context(), world.Files{In: c.InOrStdin(), Progress: c.ErrOrStderr(), Recursive: o.recursive}, c.OutOrStdout())
	}
	fs := c.Flags()
	fs.StringArrayVarP(&o.files, "filename", "f", nil,
		"`file` or folder of registrations and classes; - is standard input; may be repeated")
	world.AddRecursive(c, &o.recursive)
	o.output.Add(c, github)
	fs.Lookup("output").Usage += ", github for the log of a GitHub workflow"
	fs.BoolVar(&o.strict, "strict", false, "count warnings as errors")
	fs.BoolVar(&o.rules, "rules", false, "list the rules, and check nothing")
	_ = c.MarkFlagFilename("filename", world.Extensions...) // It fails only for an unknown flag.
	return c
}

func (o *checkOptions) validate() error {
	var errs []error
	if len(o.files) == 0 && !o.rules {
		errs = append(errs, errors.New("--filename: name the files to check, such as -f deploy/, or -f - for standard input"))
	}
	return errors.Join(append(errs, world.CheckStdin(o.files), o.output.Validate(github))...)
}

func (o *checkOptions) run(ctx context.Context, files world.Files, out io.Writer) error {
	if o.rules {
		report := &RulesReport{metav1.TypeMeta{APIVersion: CheckVersion, Kind: "Rules"}, Rules}
		return o.output.Print(out, report, func() string {
			var text strings.Builder
			for _, r := range Rules {
				fmt.Fprintf(&text, "%-22s %-9s %s\n", r.Name, r.Severity, r.Text)
			}
			return text.String()
		})
	}
	objects, err := files.Manifests(ctx, o.files)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(objects, func(d world.Document) bool { return d.GroupVersionKind().Group == v1beta1.GroupVersion.Group }) {
		_, _ = fmt.Fprintln(files.Progress, "note: the files have neither a ClaimKind nor a ClassKind")
	}
	findings, err := lint(ctx, objects)
	if err != nil {
		return err
	}
	report := &CheckReport{metav1.TypeMeta{APIVersion: CheckVersion, Kind: "Report"}, append([]Finding{}, findings...)}
	if err := o.output.Print(out, report, func() string { return o.format(findings) }); err != nil {
		return err
	}
	mistakes := 0
	for _, f := range findings {
		if f.Severity == Mistake || o.strict && f.Severity == Doubt {
			mistakes++
		}
	}
	if mistakes > 0 {
		return exit.Finding(errors.New(output.Count(mistakes, "mistake")))
	}
	return nil
}

// format of people, or of a workflow.
func (o *checkOptions) format(findings []Finding) string {
	var text strings.Builder
	for _, f := range findings {
		if o.output == github {
			level := strings.Replace(string(f.Severity), string(Remark), "notice", 1)
			fmt.Fprintf(&text, "::%s file=%s,line=%d,title=%s::%s\n", level, property.Replace(truncate.Printable(f.File)), f.Line, f.Rule,
				data.Replace(truncate.Printable(f.Object+": "+f.Message)))
			continue
		}
		fmt.Fprintf(&text, "%s:%d: %s: %s: %s (%s)\n", truncate.Printable(f.File), f.Line, f.Severity,
			truncate.Printable(f.Object), truncate.Printable(f.Message), f.Rule)
	}
	return text.String()
}

// data and property escape a message, and a property, of a workflow command:
// https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
var (
	data     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
