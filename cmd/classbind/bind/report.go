package bind

import (
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/truncate"
)

// Version is the version of what the command prints for programs. New fields keep it; any other change needs a new version.
const Version = "bind.classbind.io/v1beta1"

// Outcome is what became of a claim.
type Outcome string

const (
	// Bound claims have got a class, or would without --dry-run.
	Bound Outcome = "Bound"
	// Unmatched claims have no class, because none matches.
	Unmatched Outcome = "Unmatched"
	// LeftAlone claims are not for classbind to bind.
	LeftAlone Outcome = "LeftAlone"
	// Failed claims are malformed, or could not be written.
	Failed Outcome = "Failed"
)

// Claim is what became of one claim. With -o json or yaml, each is printed at once, as an object of its own.
type Claim struct {
	metav1.TypeMeta `json:",inline"`
	ClaimKind       string  `json:"claimKind"`
	Namespace       string  `json:"namespace,omitempty"`
	Name            string  `json:"name"`
	Outcome         Outcome `json:"outcome"`
	// Reason is the outcome's reason in one word.
	Reason string `json:"reason"`
	// Message is the reason for people. It is empty for a Bound claim.
	Message string `json:"message,omitempty"`
	// Class of a Bound claim.
	Class  *selector.ClassName `json:"class,omitempty"`
	DryRun bool                `json:"dryRun,omitempty"`
}

// Summary counts the claims, and is the last object.
type Summary struct {
	metav1.TypeMeta `json:",inline"`
	Bound           int `json:"bound"`
	Unmatched       int `json:"unmatched"`
	// LeftAlone claims that are settled without a class, such as by an empty name of one, have a Claim only if they are named.
	LeftAlone int `json:"leftAlone"`
	Failed    int `json:"failed"`
	// HaveClass counts claims that had their class before. No Claim is printed for them, unless they are named.
	HaveClass int  `json:"haveClass"`
	DryRun    bool `json:"dryRun,omitempty"`
}

func (b *binder) claim(namespace, name string) *Claim {
	return &Claim{ClaimKind: b.kind.View.Kind.Name, Namespace: namespace, Name: name, DryRun: b.dryRun != connect.NoDryRun}
}

func (c *Claim) end(o Outcome, reason, message string) *Claim {
	c.Outcome, c.Reason, c.Message = o, reason, message
	return c
}

func (c *Claim) failed(reason string, err error) *Claim {
	return c.end(Failed, reason, truncate.Error(err).Error())
}

func (c *Claim) String() string { return klog.KRef(c.Namespace, c.Name).String() }

// reporter prints what becomes of claims, one by one, and keeps none.
type reporter struct {
	Summary
	options *options
	out     io.Writer
	// several reports whether the claims have several ClaimKinds.
	several bool
	err     error
}

func (r *reporter) print(c *Claim) {
	counts := map[Outcome]*int{Bound: &r.Bound, Unmatched: &r.Unmatched, LeftAlone: &r.LeftAlone, Failed: &r.Failed}
	*counts[c.Outcome]++
	c.TypeMeta = metav1.TypeMeta{APIVersion: Version, Kind: "Claim"}
	r.write(c, func() string { return truncate.Printable(r.line(c)) + "\n" })
}

func (r *reporter) line(c *Claim) string {
	text, how := c.String(), "not bound"
	if r.several {
		text += ", by " + c.ClaimKind
	}
	switch c.Outcome {
	case Bound: // The summary says if it is a dry run.
		return text + ": bound to " + c.Class.Kind + "/" + klog.KRef(c.Class.Namespace, c.Class.Name).String()
	case LeftAlone:
		how = "left alone"
	case Unmatched, Failed:
	}
	return fmt.Sprintf("%s: %s (%s): %s", text, how, c.Reason, c.Message)
}

// write an object at once: a command that is killed has printed what it did.
func (r *reporter) write(object any, line func() string) {
	if r.options.output == "yaml" {
		_, _ = io.WriteString(r.out, "---\n")
	}
	if err := r.options.output.Print(r.out, object, line); err != nil && r.err == nil {
		r.err = err
	}
}

// end prints the summary. It returns an error unless all is well.
func (r *reporter) end() error {
	r.TypeMeta, r.DryRun = metav1.TypeMeta{APIVersion: Version, Kind: "Summary"}, r.options.dryRun != connect.NoDryRun
	r.write(&r.Summary, func() string {
		text := fmt.Sprintf("%d bound, %d without a class, %d left alone, %d failed; %d had their class",
			r.Bound, r.Unmatched, r.LeftAlone, r.Failed, r.HaveClass)
		if r.DryRun {
			text += " (dry run)"
		}
		return text + "\n"
	})
	switch {
	case r.err != nil:
		return r.err
	case r.Failed > 0:
		return fmt.Errorf("cannot bind %s", output.Count(r.Failed, "claim"))
	case r.Unmatched > 0:
		return exit.Finding(errors.New(output.Count(r.Unmatched, "claim") + " without a class"))
	}
	return nil
}
