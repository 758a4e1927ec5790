package selector

import (
	"errors"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

func (e *Explanation) candidate(c *inventory.Class) Candidate {
	candidate := Candidate{ClassName: NameOf(c), Class: c, Weight: c.Weight}
	if c.WeightErr != nil {
		candidate.WeightError = c.WeightErr.Error()
	}
	if kind := e.Decision.View.Kind; kind.Score != nil {
		facts := e.Decision.facts
		_, _ = facts.rank(kind, c)
		candidate.Score = facts.score
	}
	return candidate
}

// score is how candidates rank by an expression, nil if there is none.
func (e *Explanation) score() func(*inventory.Class) int64 {
	kind, facts := e.Decision.View.Kind, e.Decision.facts
	if kind.Score == nil {
		return nil
	}
	return func(c *inventory.Class) int64 {
		rank, _ := facts.rank(kind, c)
		return rank
	}
}

// addError adds why an expression has no result.
func (d *Drop) addError(err error) {
	if failed := (*fitError)(nil); errors.As(err, &failed) { // Its expression is shown beside it.
		err = failed.err
	}
	if err != nil {
		d.Text += ": " + truncate.String(expression.Detail(err), v1beta1.MaxMessageBytes)
	}
}

// addExpression adds the expression that drops a class, of a fit its first term that is not
// true, and what it saw.
func (d *Drop) addExpression(kind *ClaimKind, facts *facts) {
	if offerWhen := d.Class.Kind.ForClaims.OfferWhen; d.Reason == "NotOffered" && offerWhen != nil {
		d.Expression = offerWhen.String() // What it saw is not held.
		return
	}
	if facts == nil {
		return
	}
	if d.Reason == "NoScore" && kind.Score != nil {
		facts.input.Class = d.Class.Fields
		d.Expression, d.Saw = kind.Score.String(), kind.Score.Saw(&facts.input)
		return
	}
	for _, f := range slices.Concat(kind.Fits, d.Class.Kind.ForClaims.Fits) {
		if f.Name != d.Reason && d.Reason != otherFit && d.Reason != reasonFailed {
			continue
		}
		if term, err := facts.drops(f, d.Class); term != nil && (err != nil || d.Reason != reasonFailed) {
			facts.input.Class = d.Class.Fields
			d.Expression, d.Saw = term.String(), term.Saw(&facts.input)
			return
		}
	}
}

// addUnequal adds the classes that the selector matches and the index did not find, because
// an equality term is not true of them.
func (e *Explanation) addUnequal(asked map[*inventory.Class]bool) {
	d := &e.Decision
	selector := d.asks()
	if selector == nil {
		return
	}
	for _, s := range d.View.Classes {
		s.EachOffered(&d.View.Kind.Reach, d.Claim.Namespace, func(c *inventory.Class) {
			if asked[c] || !selector.Matches(&c.Labels) {
				return
			}
			if drop := d.drops(c); drop != nil {
				asked[c] = true
				e.Dropped = append(e.Dropped, *drop)
			}
		})
	}
}

// addUnserving adds the classes that cannot serve claims of the kind at all, and would be
// asked about otherwise.
func (e *Explanation) addUnserving() {
	d := &e.Decision
	selector := d.asks()
	for i, s := range d.View.All {
		if d.View.Classes[i] == s {
			continue
		}
		s.EachOffered(&d.View.Kind.Reach, d.Claim.Namespace, func(c *inventory.Class) {
			by, term, err := d.View.Kind.Unmet(c)
			if by == nil || selector == nil && !c.Default || selector != nil && !selector.Matches(&c.Labels) {
				return
			}
			drop := Drop{Class: c, Reason: by.Name, Text: by.Text, Expression: term.String()}
			if err != nil {
				drop.Reason, drop.Text = reasonFailed, failedText
				drop.addError(err)
			}
			drop.Saw = term.Saw(&expression.Input{Class: c.Fields})
			e.Dropped = append(e.Dropped, drop)
		})
	}
}
