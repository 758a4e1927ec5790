package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// Version of the reports. A field is only ever added to it; anything else makes a new one.
const Version = "explain.classbind.io/v1alpha1"

// Report is what "classbind explain" prints with -o json or yaml.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Items are in the order of the claims.
	Items []Item `json:"items"`
}

// Outcome of a claim.
type Outcome string

// The outcomes.
const (
	// Bound claims get a class.
	Bound Outcome = "Bound"
	// Unmatched claims get none, because there is none for them.
	Unmatched Outcome = "Unmatched"
	// LeftAlone are claims that are not classbind's to bind.
	LeftAlone Outcome = "LeftAlone"
	// Malformed claims are refused.
	Malformed Outcome = "Malformed"
	// Undecided are claims whose registration is at fault: their failurePolicy decides.
	Undecided Outcome = "Undecided"
)

// Item explains one claim.
type Item struct {
	Claim   Claim   `json:"claim"`
	Outcome Outcome `json:"outcome"`
	// Reason of the outcome in a word.
	Reason string `json:"reason"`
	// Message is the same for people.
	Message string `json:"message"`
	// Class of a claim that is Bound; absent where it depends on more than is known here.
	Class *Class `json:"class,omitempty"`
	// Reference to the class, as the claim would have it.
	Reference any `json:"reference,omitempty"`
	// Reproducible says that the same claim gets the same class every time;
	// otherwise the class is that of one draw.
	Reproducible bool `json:"reproducible"`
	// Warning is what the claim's author is told at admission beside the message.
	Warning string `json:"warning,omitempty"`

	// Selector of the claim, in kubectl's syntax; absent where it has none.
	Selector      *string                `json:"selector,omitempty"`
	Strategy      v1alpha1.Strategy      `json:"strategy,omitempty"`
	Seed          v1alpha1.Seed          `json:"seed,omitempty"`
	WhenUnmatched v1alpha1.WhenUnmatched `json:"whenUnmatched,omitempty"`
	// OddsDependOn says on what the draw depends that is not known here, so that
	// candidates have no odds.
	OddsDependOn string `json:"oddsDependOn,omitempty"`

	// Candidates from which the class was drawn, the likeliest first.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Dropped classes are asked for, and not to be had by this claim.
	Dropped []Dropped `json:"dropped,omitempty"`
	// NearMisses are the classes that one requirement of the selector keeps out, the nearest first.
	NearMisses []NearMiss `json:"nearMisses,omitempty"`
	// FarMisses counts the classes that more than one requirement keeps out.
	FarMisses int `json:"farMisses,omitempty"`
	// NotDefault counts the classes that are not marked default, for a claim without a selector.
	NotDefault int `json:"notDefault,omitempty"`

	// Errors of a Malformed claim.
	Errors []FieldError `json:"errors,omitempty"`
	// Notes are what may make the server decide otherwise.
	Notes []string `json:"notes,omitempty"`
}

// Claim is the one that is explained.
type Claim struct {
	// ClaimKind that registers it, <plural>.<group>; empty, none does.
	ClaimKind  string `json:"claimKind,omitempty"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	// Name is empty where the API server makes it up.
	Name string `json:"name,omitempty"`
	// Source is the file and the place in it.
	Source string `json:"source"`
}

// Class names a class.
type Class struct {
	// ClassKind that registers it, <plural>.<group>.
	ClassKind string `json:"classKind"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Candidate is a class that may be drawn.
type Candidate struct {
	Class `json:",inline"`
	// Chosen is that of the claim.
	Chosen bool `json:"chosen,omitempty"`
	// Weight, from 0 to 1000000, whether or not the strategy heeds it.
	Weight int64 `json:"weight"`
	// WeightError says why the weight that the class has cannot be read; it counts as 1.
	WeightError string `json:"weightError,omitempty"`
	// Odds are absent where they depend on more than is known here.
	Odds *Odds `json:"odds,omitempty"`
}

// Odds are exactly share/total, and probability is that as a number.
type Odds struct {
	Probability float64 `json:"probability"`
	Share       int64   `json:"share"`
	Total       int64   `json:"total"`
}

// Dropped is a class that is asked for, and why the claim may not get it.
type Dropped struct {
	Class `json:",inline"`
	Drop  `json:",inline"`
}

// Drop is why a claim may not get a class.
type Drop struct {
	// Reason in a word.
	Reason string `json:"reason"`
	// Message reads after "is".
	Message string `json:"message"`
}

// NearMiss is a class that meets all requirements but one.
type NearMiss struct {
	Class `json:",inline"`
	Unmet Requirement `json:"unmet"`
	// Value of the label that the class has instead; absent, it has none.
	Value *string `json:"value,omitempty"`
	// Dropped is why the claim would not get the class all the same; absent, it could.
	Dropped *Drop `json:"dropped,omitempty"`
}

// Requirement of a selector.
type Requirement struct {
	Key string `json:"key"`
	// Operator as package labels has it: in, notin, exists, !, =, ==, !=, gt, lt.
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
	// Text is all of it, in kubectl's syntax.
	Text string `json:"text"`
}

// FieldError is what is wrong with a field.
type FieldError struct {
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func newReport() *Report {
	return &Report{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Report"}, Items: []Item{}}
}

func (i *Item) end(o Outcome, reason, message string) *Item {
	i.Outcome, i.Reason, i.Message = o, reason, message
	return i
}

func (i *Item) leftAlone(reason, why string) *Item { return i.end(LeftAlone, reason, why) }

func (i *Item) malformed(errs field.ErrorList) *Item {
	texts := make([]string, len(errs))
	for n, err := range errs {
		texts[n] = err.Error()
		i.Errors = append(i.Errors, FieldError{Field: err.Field, Reason: string(err.Type), Message: err.ErrorBody()})
	}
	return i.end(Malformed, "MalformedClaim", strings.Join(texts, "; "))
}

func (i *Item) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// decideBy tells what the claim kind says of decisions.
func (i *Item) decideBy(k *v1alpha1.ClaimKind) {
	i.Strategy, i.Seed, i.WhenUnmatched = k.Spec.Strategy, k.Spec.Seed, k.Spec.WhenUnmatched
}

// add what the engine tells.
func (i *Item) add(e selector.Explanation) {
	d := e.Decision
	if d.Claim.Selector != nil {
		text := d.Claim.Selector.String()
		i.Selector = &text
	}
	i.Reproducible, i.Warning = e.Reproducible, d.Warning()
	i.FarMisses, i.NotDefault = e.FarMisses, e.NotDefault
	i.OddsDependOn = d.View.Kind.Strategy.Depends
	known := d.Class != nil && (i.OddsDependOn == "" || len(e.Candidates) == 1)
	if known {
		class := nameOf(d.Class)
		i.Class, i.Reference = &class, d.View.Kind.Reference(d.Class)
	}
	for _, c := range e.Candidates {
		candidate := Candidate{Class: nameOf(c.Class), Chosen: known && c.Class == d.Class, Weight: c.Class.Weight}
		if c.Class.WeightErr != nil {
			candidate.WeightError = c.Class.WeightErr.Error()
		}
		if c.Odds.Total > 0 {
			candidate.Odds = &Odds{Probability: float64(c.Odds.Share) / float64(c.Odds.Total), Share: c.Odds.Share, Total: c.Odds.Total}
		}
		i.Candidates = append(i.Candidates, candidate)
	}
	for _, c := range e.Dropped {
		i.Dropped = append(i.Dropped, Dropped{Class: nameOf(c.Class), Drop: Drop{Reason: c.Reason, Message: c.Text}})
	}
	for _, m := range e.NearMisses {
		miss := NearMiss{Class: nameOf(m.Class), Unmet: Requirement{
			Key: m.Unmet.Key(), Operator: string(m.Unmet.Operator()), Values: slices.Sorted(slices.Values(m.Unmet.ValuesUnsorted())), Text: m.Unmet.String(),
		}}
		if m.Has {
			miss.Value = &m.Value
		}
		if m.Drop != nil {
			miss.Dropped = &Drop{Reason: m.Drop.Reason, Message: m.Drop.Text}
		}
		i.NearMisses = append(i.NearMisses, miss)
	}
}

func nameOf(c *selector.Class) Class {
	return Class{ClassKind: c.Kind.Name, Kind: c.Kind.GroupVersionKind.Kind, Namespace: c.Namespace, Name: c.Name}
}

func (r *Report) print(out io.Writer, output string) error {
	var text []byte
	var err error
	switch output {
	case "json":
		text, err = json.MarshalIndent(r, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(r)
	default:
		text, err = r.table()
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// exit is an error where a claim is neither bound nor left alone.
func (r *Report) exit() error {
	count := map[Outcome]int{}
	for _, i := range r.Items {
		count[i.Outcome]++
	}
	n := len(r.Items)
	switch {
	case count[Malformed]+count[Undecided] > 0:
		return failed(fmt.Errorf("%d of %d claims malformed or undecided", count[Malformed]+count[Undecided], n))
	case count[Unmatched] > 0:
		return &ExitError{Status: exitUnmatched, Err: fmt.Errorf("%d of %d claims without a class", count[Unmatched], n)}
	}
	return nil
}
