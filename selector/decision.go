package selector

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// Refusal is a candidate that a gate dropped.
type Refusal struct {
	Class *inventory.Class
	Gate  *Test
}

// Decision is the class of a claim, and why.
type Decision struct {
	View *View
	// Claim, if it is left alone or has problems, was not decided on.
	Claim claim.Intake
	// partition of the claim, if it gets a default class, and the values of its equality terms.
	partition string
	values    inventory.Values
	// Class is nil if the claim is unmatched.
	Class *inventory.Class
	// only is the class that the claim gets because it is offered no other, nil if it is not so: see findOnly.
	only *inventory.Class
	// Lacks is the field that the schema requires of a claim, and that this one lacks without a class. It is empty if there is none.
	Lacks string
	// Candidates is how many classes the tests left.
	Candidates int
	// Dropped counts the classes that the claim asked for and each test of its kind dropped, nil if none did, and
	// DropErr is the error of a test, for the first class by name. So replicas say the same.
	Dropped []int
	DropErr error
	dropErr *inventory.Class
	// cordoned is the first of these by name that is cordoned.
	cordoned *inventory.Class
	// Unjudged and Skipped count the classes for which no expression was evaluated, because those for other classes cost too much. The
	// strategy may prefer one that is unjudged to Class, and none that was skipped.
	Unjudged, Skipped int
	// Usable are some of the classes that a claim that gets none may use, where it may not use all. It is nil where that is not known.
	Usable []*inventory.Class
	// Refused are the candidates that gates dropped, in the order of the draw. With a chooser, some may come after Class.
	Refused []Refusal
	// answers are, if the decision is explained, the gate that refuses a candidate, nil where none does, of all candidates.
	answers map[*inventory.Class]*Test
	// Choice is what came of the question to a chooser.
	Choice Answer
	// Took is how long the draws took without the gates.
	Took time.Duration
	// Waited is what came of waiting for a newer view.
	Waited WaitOutcome
}

// forgetDraw makes room for the outcome of another draw.
func (d *Decision) forgetDraw() {
	d.Candidates, d.Dropped, d.DropErr, d.dropErr, d.cordoned, d.Refused = 0, nil, nil, nil, nil, nil
	d.Unjudged, d.Skipped, d.Lacks, d.Choice = 0, 0, "", Answer{}
}

// Drawn reports whether there was a draw, with or without a candidate.
func (d *Decision) Drawn() bool {
	return d.View != nil && d.View.Fault == nil && d.Claim.LeftAlone == "" && len(d.Claim.Problems) == 0
}

// Denied reports whether the claim is not to be created without a class: its kind says so, or the API server would refuse it less clearly.
func (d *Decision) Denied() bool {
	return d.Drawn() && d.Class == nil && !d.Unneeded() && (d.View.Kind.Deny || d.Lacks != "")
}

// Unneeded reports whether a claim gets no class, does without one, and asked for none: there is nothing to report.
func (d *Decision) Unneeded() bool {
	return d.Drawn() && d.Class == nil && d.Lacks == "" && d.Claim.Selector == nil && d.Claim.Given == nil && d.Choice.Outcome == "" &&
		(d.View.Kind.Use != "" || // A default that it may not use does not count, and one that it cannot get is to be reported.
			d.Candidates == 0 && len(d.Refused) == 0 && !d.misses()) &&
		d.View.Kind.Reader.WhenNoSelector == v1beta1.NoSelectorDefaultIfAny
}

// misses reports whether a class was dropped for another reason than that it does not fit the claim: it might be mended.
func (d *Decision) misses() bool {
	for i, n := range d.Dropped {
		if n > 0 && (i < d.View.Kind.free+2 || d.View.Kind.tests[i].Reason == reasonNoScore) {
			return true
		}
	}
	return false
}

// Warning is what the claim's author, or the cluster's admins, should fix. It is empty if nothing is wrong.
func (d *Decision) Warning() string {
	warning := ""
	switch {
	case len(d.Claim.Problems) > 0: // Of a claim that waits.
		warning = truncate.String(d.Claim.Problems[0].Error(), v1beta1.MaxMessageBytes)
	case d.Unneeded():
	case d.Class == nil:
		warning = d.unmatched()
	case d.Choice.Outcome != "" && d.choiceText() != "":
		warning = d.choiceText()
	case d.asks() == nil && d.Candidates > 1 && d.View.Kind.Use == "": // It must not learn of those that it may not use.
		warning = fmt.Sprintf("%d classes are marked default for %q, and %q was drawn: leave the mark on one of them",
			d.Candidates, d.View.Kind.Name, d.Class)
	}
	if len(d.View.Unread) == 0 {
		return warning
	}
	if warning != "" {
		warning += "; "
	}
	return warning + d.View.UnreadText()
}

// Patch gives the claim its class, after these tests, and the annotation that says why.
func (d *Decision) Patch(tests ...fields.Operation) []byte {
	annotation := ""
	if d.View.Kind.Reader.Annotates {
		annotation = d.Record().String()
	}
	return d.View.Kind.Reader.Reference.Patch(&d.Claim, d.Class.Target(), annotation, tests)
}

// Record is what the annotation of a bound claim says of the decision.
type Record struct {
	Reason     string           `json:"reason"`
	Class      string           `json:"class"`
	Strategy   v1beta1.Strategy `json:"strategy"`
	Candidates int              `json:"candidates,omitempty"` // None where the claim may not use all: it must not learn how many.
}

// Record of a decision for a class.
func (d *Decision) Record() Record {
	r := Record{d.Reason(), d.Class.String(), d.View.Kind.Strategy.Name, d.Candidates}
	if d.View.Kind.Use != "" {
		r.Candidates = 0
	}
	return r
}

func (r Record) String() string {
	text, _ := json.Marshal(r) // It has strings and a number.
	return string(text)
}

// Given reports whether the claim refers to its class already, as it may where claims.when is true for it: nothing is to be written.
func (d *Decision) Given() bool {
	k, in := d.View.Kind, &d.Claim
	if d.Class == nil || !k.Reader.Reference.Decides {
		return false
	}
	to, has := k.Reader.Reference.RefersTo(in.Object)
	if !has {
		return false
	}
	counts := k.Reader.Reference.CountsFor(in.Namespace, to)
	return counts[0] == k.Demand.CountedAs(d.Class) || counts[1] != 0 && counts[1] == k.Demand.CountedAs(d.Class)
}

// lacksCompany is what the schema requires beside the reference, and only the author can give; nil if the claim has it.
func (d *Decision) lacksCompany() *field.Error {
	return d.View.Kind.Reader.Reference.LacksCompany(d.Claim.Parents)
}

// Only reports whether the claim is offered one class alone, and asks for that.
func (d *Decision) Only() bool { return d.only != nil }

// asks is what the claim asks for: nil is the default class, or the only one.
func (d *Decision) asks() labels.Selector { return d.View.Kind.Reader.Asks(d.Claim.Claim) }

// Reason of the decision in a word, for programs.
func (d *Decision) Reason() string {
	switch {
	case d.Claim.LeftAlone != "":
		return d.Claim.LeftAlone
	case len(d.Claim.Problems) > 0:
		return "MalformedClaim"
	case d.Choice.Outcome == ChooserNone:
		return "NoClassByChooser"
	case d.Class == nil && d.asks() == nil && d.only == nil:
		return "NoDefaultClass"
	case d.Class == nil:
		return "NoMatchingClass"
	case d.only != nil:
		return "OnlyClass"
	case d.asks() == nil:
		return "DefaultClass"
	case d.Claim.Selector == nil:
		return "AnyClass"
	}
	return "MatchingClass"
}

// DroppedText is how many classes each test dropped, such as "Cordoned=2,WeightZero=1", for programs.
func (d *Decision) DroppedText() string {
	return d.dropped(func(reason, _ string, n int) string { return fmt.Sprintf("%s=%d", reason, n) }, ",")
}

// IsFull reports whether a claim gets no class, and at least one had no room for it. Those that a chooser left it had room before.
func IsFull(d *Decision) bool {
	isTaken := d.Choice.Outcome != "" && d.Choice.Outcome != ChooserNone
	return d.Drawn() && d.Class == nil && (isTaken || droppedBy(d, reasonFull))
}

// droppedBy reports whether the test with this reason dropped a class.
func droppedBy(d *Decision, reason string) bool {
	i := slices.IndexFunc(d.View.Kind.tests, func(t Test) bool { return t.Reason == reason })
	return d.Dropped != nil && i >= 0 && d.Dropped[i] > 0
}

func (d *Decision) dropped(format func(reason, text string, n int) string, separator string) string {
	var texts []string
	for i, n := range d.Dropped {
		if n > 0 {
			t := &d.View.Kind.tests[i]
			texts = append(texts, format(t.Reason, t.Text, n))
		}
	}
	byGate := map[*Test]int{}
	for _, r := range d.Refused {
		byGate[r.Gate]++
	}
	for _, r := range d.Refused { // In the order of their first refusals.
		if n := byGate[r.Gate]; n > 0 {
			texts = append(texts, format(r.Gate.Reason, r.Gate.Text, n))
			delete(byGate, r.Gate)
		}
	}
	if more := len(texts) - maxDrops; more > 0 {
		texts = append(texts[:maxDrops], fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, separator)
}

// maxDrops limits the reasons in a text. Each of the class kinds of a claim kind may have fits, by names of its own.
const maxDrops = 32
