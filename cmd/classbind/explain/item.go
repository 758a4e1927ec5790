package explain

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/rules"
)

func (i *Item) end(o Outcome, reason, message string) *Item {
	i.Outcome, i.Reason, i.Message = o, reason, message
	return i
}

// malformedClaim is the reason for which classbind itself refuses a claim.
const malformedClaim = "MalformedClaim"

func (i *Item) leftAlone(reason, why string) *Item { return i.end(LeftAlone, reason, why) }

func (i *Item) malformed(errs field.ErrorList) *Item {
	for _, err := range errs {
		i.Errors = append(i.Errors, newFieldError(err))
	}
	return i.end(Malformed, malformedClaim, joined(i.Errors))
}

func (i *Item) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// addDecision records which class the claim gets, as far as that is known.
func (i *Item) addDecision() {
	d := &i.Decision
	if d.Claim.Selector != nil {
		text := d.Claim.Selector.String()
		i.Selector = &text
	}
	i.Warning, i.OddsDependOn = d.Warning(), d.View.Kind.Strategy.Depends
	if d.Class == nil || i.OddsDependOn != "" && len(i.Candidates) > 1 {
		return
	}
	class := selector.NameOf(d.Class)
	i.Class, i.Reference = &class, d.View.Kind.Reference(d.Class.Target())
	for n := range i.Candidates {
		i.Candidates[n].Chosen = i.Candidates[n].Class == d.Class
	}
}

func newInvalidExpression(registration string, e rules.Invalid) InvalidExpression {
	return InvalidExpression{registration, e.Field, e.Err.Line, e.Err.Column, e.Err.Text, e.Err.Caret()}
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
		case Unmatched, Unbound:
			unmatched.Insert(claim)
		case Bound, LeftAlone:
		}
	}
	switch {
	case len(undecided) > 0:
		return fmt.Errorf("%d of %d claims malformed or undecided", len(undecided), len(all))
	case len(unmatched) > 0:
		return &exit.Error{Status: exit.Unmatched, Err: fmt.Errorf("%d of %d claims without a class", len(unmatched), len(all))}
	}
	return nil
}
