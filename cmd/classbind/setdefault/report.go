package setdefault

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/selector/truncate"
)

// Version is the version of the report for programs. New fields keep it; any other change needs a new version.
const Version = "set-default.classbind.io/v1beta1"

// Report is what "classbind set-default" prints with -o json or yaml, at its end.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	DryRun          bool `json:"dryRun,omitempty"`
	// Results are in the order in which they came about.
	Results []Result `json:"results"`
}

// Result is what the command did, or would do.
type Result struct {
	// Object is a class, RESOURCE/NAME or RESOURCE/NAMESPACE/NAME, or a claim kind with its namespace and partition.
	Object string `json:"object"`
	// Reason is what became of it in one word.
	Reason Reason `json:"reason"`
	// Message is the same for people.
	Message string `json:"message"`
}

// Reason is what became of a class or a claim kind.
type Reason string

const (
	// Unmarked classes have lost the mark of a default.
	Unmarked Reason = "Unmarked"
	// Default is the class that has got the mark.
	Default Reason = "Default"
	// AlreadyDefault is a class for which nothing had to change.
	AlreadyDefault Reason = "AlreadyDefault"
	// DefaultAgain is a former default that has its mark back, because the command failed.
	DefaultAgain Reason = "DefaultAgain"
	// NoDefault claim kinds have lost their default, as --leave-without-default allows.
	NoDefault Reason = "NoDefault"
)

func unmarked(c *storedClass) Result {
	return Result{c.String(), Unmarked, "no longer the default for " + strings.Join(c.claimKinds(), ", ")}
}

// results of the plan, except for the classes that lose their mark.
func (p *plan) results() []Result {
	message := "the default for " + listFunc(p.seats, seatText)
	if len(p.gain) > 0 {
		message += fmt.Sprintf(", and for %s, which had none", strings.Join(p.gain, ", "))
	}
	all := []Result{{p.target.String(), Default, message}}
	for _, seat := range p.lose {
		all = append(all, Result{seatText(seat), NoDefault, "no longer has a default"})
	}
	return all
}

// printResult prints results at once for people: a command that is killed has printed what it did.
func (m *mover) printResult(results ...Result) {
	for _, r := range results {
		m.results = append(m.results, r)
		if line := r.Object + ": " + r.Message; m.options.output == "table" {
			if m.options.dryRun != connect.NoDryRun {
				line += " (dry run)"
			}
			_, _ = fmt.Fprintln(m.out, truncate.Printable(line))
		}
	}
}

// end prints the report for programs.
func (m *mover) end() error {
	if m.options.output == "table" {
		return nil
	}
	report := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Report"},
		DryRun:   m.options.dryRun != connect.NoDryRun, Results: append([]Result{}, m.results...),
	}
	return m.options.output.Print(m.out, report, nil)
}
