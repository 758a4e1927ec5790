package selector

import (
	"math"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// subject of a decision: a claim, and what expressions say of it, nil for a kind without.
type subject struct {
	claim.Claim
	facts *facts
	// view of all classes, also where the draw is among those that were read for the claim.
	view *View
}

// facts are what the expressions of a ClaimKind see of one claim, and what they say of it.
// One goroutine uses them, for one decision.
type facts struct {
	// names of the related objects, by the name of the relation, with their namespace. Those
	// that are absent have a name and no object.
	names map[string]string
	// partition of the claim, if it gets a default class.
	partition string

	input  expression.Input
	budget expression.Budget
	values inventory.Values
	terms  []claimTerm
	// turn waits for a turn of a costly decision, unless it has one. Nil needs none.
	turn func() error
	// err ends the decision: it got no turn.
	err error
	// costly is why the claim is at fault for what it costs to judge a class, nil if it is not.
	costly *field.Error
	// ranked is the class whose score is lastRank.
	ranked   *inventory.Class
	lastRank int64
	lastErr  error
	score    any
}

// claimTerm is a term of a fit that does not look at the class, and is not true.
type claimTerm struct {
	of   *rules.Fit
	term *expression.Expression
	err  error
}

func newFacts(c claim.Claim) *facts {
	f := &facts{budget: expression.Budget{Left: v1beta1.MaxExpressionCost}, input: expression.Input{Claim: c.Object}}
	if c.Request != nil {
		f.input.Request = c.Request
	}
	return f
}

func (f *facts) bool(e *expression.Expression) (bool, error) { return e.Bool(&f.input, &f.budget) }

// claimTerm of a fit that is not true, nil if all are.
func (f *facts) claimTerm(of *rules.Fit) *claimTerm {
	for i := range f.terms {
		if f.terms[i].of == of {
			return &f.terms[i]
		}
	}
	return nil
}

// meets reports whether a class meets an equality.
func (f *facts) meets(e *rules.Equality, c *inventory.Class) (bool, error) {
	v := f.values.Of(e)
	if v.Err != nil {
		return false, v.Err
	}
	if v.Indexed && v.Equals(c) {
		return true, nil
	}
	return f.bool(e.Term) // It also has the text of an error.
}

// rank of a class by its score.
func (f *facts) rank(k *ClaimKind, c *inventory.Class) (int64, error) {
	if f.ranked != c {
		f.ranked = c
		f.input.Class = c.Fields
		f.score, f.lastErr = k.Score.Number(&f.input, &f.budget)
		f.lastRank = rankOf(f.score)
		if k.Strategy.Name == v1beta1.LowestScore {
			f.lastRank = -f.lastRank
		}
	}
	return f.lastRank, f.lastErr
}

// judgedRank is the rank of a class if it was judged last.
func (f *facts) judgedRank(c *inventory.Class) int64 {
	if f.ranked != c {
		return 0
	}
	return f.lastRank
}

// rankOf a score is a number with the same order.
func rankOf(score any) int64 {
	var x float64
	switch v := score.(type) {
	case int64:
		x = float64(v)
	case float64:
		x = v
	}
	if x == 0 { // There are two zeros.
		return 0
	}
	bits := int64(math.Float64bits(math.Abs(x))) //nolint:gosec // The sign bit is 0.
	if x < 0 {
		return -bits
	}
	return bits
}
