package explain

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/brief"
	"github.com/classbind/classbind/selector/expression"
)

func newReport() *Report {
	return &Report{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Report"}, Items: []Item{}}
}

func (i *Item) end(o Outcome, reason, message string) *Item {
	i.Outcome, i.Reason, i.Message = o, reason, message
	return i
}

// malformedClaim is the reason for which classbind itself refuses a claim.
const malformedClaim = "MalformedClaim"

func (i *Item) leftAlone(reason, why string) *Item { return i.end(LeftAlone, reason, why) }

func (i *Item) malformed(errs field.ErrorList) *Item {
	texts := make([]string, len(errs))
	for n, err := range errs {
		texts[n] = err.Error()
		i.Errors = append(i.Errors, FieldError{Field: err.Field, Reason: string(err.Type), Message: err.ErrorBody()})
	}
	return i.end(Malformed, malformedClaim, strings.Join(texts, "; "))
}

func (i *Item) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// decideBy records how the claim kind decides.
func (i *Item) decideBy(k *v1alpha1.ClaimKind) {
	i.Strategy, i.Seed, i.WhenUnmatched = k.Spec.Strategy, k.Spec.Seed, k.Spec.WhenUnmatched
}

// add records the selector's explanation.
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
		candidate := Candidate{Class: nameOf(c.Class), Chosen: known && c.Class == d.Class, Weight: c.Class.Weight, Score: c.Score}
		if c.Class.WeightErr != nil {
			candidate.WeightError = c.Class.WeightErr.Error()
		}
		if c.Odds.Total > 0 {
			candidate.Odds = &Odds{Probability: float64(c.Odds.Share) / float64(c.Odds.Total), Share: c.Odds.Share, Total: c.Odds.Total}
		}
		i.Candidates = append(i.Candidates, candidate)
	}
	for _, c := range e.Dropped {
		i.Dropped = append(i.Dropped, Dropped{Class: nameOf(c.Class), Drop: newDrop(&c)})
	}
	for _, m := range e.NearMisses {
		miss := NearMiss{Class: nameOf(m.Class), Unmet: Requirement{
			Key: m.Unmet.Key(), Operator: string(m.Unmet.Operator()),
			Values: slices.Sorted(slices.Values(m.Unmet.ValuesUnsorted())), Text: m.Unmet.String(),
		}}
		if m.Has {
			miss.Value = &m.Value
		}
		if m.Drop != nil {
			miss.Dropped = new(newDrop(m.Drop))
		}
		i.NearMisses = append(i.NearMisses, miss)
	}
}

// addFacts records what expressions say of the claim, and saw.
func (i *Item) addFacts(e selector.Explanation) {
	i.BindWhen, i.SelectorFrom, i.Partition = newEvaluation(e.BindWhen), newEvaluation(e.SelectorFrom), newEvaluation(e.Partition)
	for _, r := range e.Related {
		i.Related = append(i.Related, Related{Name: r.Kind.Name, Resource: r.Kind.Resource, Object: r.Object, Found: r.Found})
	}
}

func newEvaluation(e *selector.Evaluation) *Evaluation {
	if e == nil {
		return nil
	}
	evaluation := &Evaluation{Expression: e.Expression, Value: e.Value, Saw: newSaw(e.Saw)}
	if e.Err != nil {
		evaluation.Error = brief.Text(expression.Detail(e.Err), v1alpha1.MaxMessageBytes)
	}
	return evaluation
}

func newDrop(d *selector.Drop) Drop {
	return Drop{Reason: d.Reason, Message: d.Text, Expression: d.Expression, Saw: newSaw(d.Saw)}
}

func newSaw(saw []expression.Saw) (all []Saw) {
	for _, s := range saw {
		all = append(all, Saw(s))
	}
	return all
}

func newInvalidExpression(registration string, e selector.InvalidExpression) InvalidExpression {
	return InvalidExpression{registration, e.Field, e.Err.Line, e.Err.Column, e.Err.Text, e.Err.Caret()}
}

func nameOf(c *selector.Class) Class {
	return Class{ClassKind: c.Kind.Name, Kind: c.Kind.GroupVersionKind.Kind, Namespace: c.Namespace, Name: c.Name}
}

// exit returns an error unless every claim is bound or left alone, by all of its ClaimKinds.
func (r *Report) exit() error {
	all, undecided, unmatched := sets.New[Claim](), sets.New[Claim](), sets.New[Claim]()
	for _, i := range r.Items {
		claim := i.Claim
		claim.ClaimKind = ""
		all.Insert(claim)
		switch i.Outcome {
		case Malformed, Undecided:
			undecided.Insert(claim)
		case Unmatched:
			unmatched.Insert(claim)
		case Bound, LeftAlone:
		}
	}
	switch {
	case undecided.Len() > 0:
		return failed(fmt.Errorf("%d of %d claims malformed or undecided", undecided.Len(), all.Len()))
	case unmatched.Len() > 0:
		return &exit.Error{Status: exitUnmatched, Err: fmt.Errorf("%d of %d claims without a class", unmatched.Len(), all.Len())}
	}
	return nil
}
