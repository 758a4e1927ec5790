package selector

import (
	"container/heap"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// Each pays for itself. To judge a class is to evaluate the expressions that look at it and at the claim, and what that costs depends on
// both. A class that costs more than MaxClassExpressionCost is dropped. If the claim has the longer fields and no other class fits, it is
// refused. All classes together cost at most MaxExpressionCost. Where they would cost more, those that come first in the draw are judged
// first, so the claim gets the class that it would get without a limit; those with long fields come last, so that they leave enough for the
// others.

var errCostly = errors.New("its fields are too long for the expressions of the claim kind")

// judgement is what the expressions say of a class for a claim.
type judgement struct {
	// by is the first test that drops the class, nil if none does, and term the expression that is not true of it, or fails.
	by   *Test
	term *expression.Expression
	err  error
	// score of the class, and its rank by that.
	score any
	rank  int64
	// cost of the evaluations, and why the claim is at fault for it, nil if it is not.
	cost   uint64
	costly *field.Error
}

// judgeInTurn judges a class, and waits for the turn of a costly decision before it costs too much.
func (k *ClaimKind) judgeInTurn(ctx context.Context, claim Subject, c *inventory.Class, out *outside) (by *Test, err error) {
	const free = v1beta1.MaxExpressionCost - v1beta1.FreeExpressionCost
	if f := claim.facts; f.err == nil && f.budget.Left < free {
		f.err = out.enter(ctx)
	}
	return k.judge(ctx, claim, c)
}

// judge returns the first judged test that drops a class, nil if none does. Nothing is evaluated for a class that is remembered, but it
// costs as much again: so those that explain a decision agree with those that make it.
func (k *ClaimKind) judge(ctx context.Context, claim Subject, c *inventory.Class) (by *Test, err error) {
	f, left := claim.facts, claim.facts.budget.Left
	if f.err != nil {
		return k.costly(), f.err
	}
	j, known := f.judged[c]
	f.last, f.of = j, c
	switch {
	case known && j.cost > left:
		f.budget.Left = 0
		return k.costly(), expression.ErrBudget
	case known:
		f.budget.Left -= j.cost
	default:
		f.budget.Left = min(left, v1beta1.MaxClassExpressionCost)
		part := f.budget.Left
		by, err = k.evaluate(ctx, claim, c, left)
		f.last.by, f.last.err, f.last.cost = by, err, part-f.budget.Left
		f.budget.Left = left - f.last.cost
		if f.remembers && !errors.Is(err, expression.ErrBudget) {
			if f.judged == nil {
				f.judged = map[*inventory.Class]judgement{}
			}
			f.judged[c] = f.last
		}
	}
	if f.costly == nil {
		f.costly = f.last.costly
	}
	return f.last.by, f.last.err
}

// evaluate the judged tests. The claim has so much left; the budget has what one class may cost.
func (k *ClaimKind) evaluate(ctx context.Context, claim Subject, c *inventory.Class, left uint64) (*Test, error) {
	by, err := (*Test)(nil), claim.facts.see(claim.View, c)
	if err == nil {
		by, err = firstDrop(ctx, k.judged(), claim, c)
	}
	switch {
	case errors.Is(err, expression.ErrBudget) && left > v1beta1.MaxClassExpressionCost:
		if length, problem := claim.longest(k.Reader); length >= claim.View.lengthOf(c) {
			claim.facts.last.costly = problem // The claim has longer fields than the class.
		}
		return k.costly(), errCostly
	case errors.Is(err, expression.ErrBudget):
		return k.costly(), err
	case err != nil && by.Reason != reasonNoScore:
		return k.failed(), err
	}
	return by, err
}

// longest returns what it costs to go through all that expressions look at beside the class, and an error for the longest field of the
// claim. A claim names no list, so it does not pay for one.
func (s Subject) longest(r *claim.Reader) (all uint64, _ *field.Error) {
	at, most := field.NewPath("metadata"), uint64(0)
	for _, p := range r.LooksAt.Paths() {
		value, _ := p.Lookup(s.Object)
		length := expression.Length(value)
		if all += length; length > most {
			at, most = p.Field(), length
		}
	}
	for _, o := range s.facts.input.Related {
		if _, isList := o.([]any); !isList {
			all += expression.Length(o)
		}
	}
	all += expression.Length(s.Request)
	return all, field.Invalid(at, field.OmitValueType{}, fmt.Sprintf(
		"the expressions of claim kind %q cost too much CPU with what they look at in this claim: make it shorter", r.Name))
}

// judgeRest judges the candidates that may be drawn before the best so far, within what is left.
func (o *order) judgeRest(ctx context.Context, best *candidate, decision *Decision, unjudged []candidate) {
	var byLength [2]candidateHeap // short, and long
	for _, c := range unjudged {
		i := 0
		if o.view.isLong(c.class) {
			i = 1
		}
		byLength[i] = append(byLength[i], c)
	}
	for i := range byLength {
		candidates, facts := &byLength[i], o.claim.facts
		heap.Init(candidates)
		for candidates.Len() > 0 && o.mayPrefer(&(*candidates)[0], best, decision) && facts.budget.Left > 0 && facts.err == nil {
			next := heap.Pop(candidates).(candidate)
			o.judge(ctx, best, decision, next.class, next.seat)
		}
	}
	for i, candidates := range byLength {
		for _, c := range candidates {
			if o.mayPrefer(&c, best, decision) {
				decision.leave(c.class, i == 1)
			} else {
				decision.Skipped++
			}
			if o.rest != nil {
				*o.rest = append(*o.rest, c)
			}
		}
	}
}

// leave a class that can no longer be judged.
func (d *Decision) leave(c *inventory.Class, isLong bool) {
	if isLong { // It pays for itself.
		d.drop(d.View.Kind.costly(), c, errCostly)
	} else {
		d.Unjudged++
	}
}

// mayPrefer reports whether the draw prefers a candidate that was not judged to the best so far.
// Where there is a score, only its expression decides. Where some are enough, any candidate may be one.
func (o *order) mayPrefer(c, best *candidate, decision *Decision) bool {
	if o.most > 0 {
		return decision.Candidates < o.most
	}
	return best.class == nil || o.view.Kind.Rules.Score != nil || c.before(best)
}

// drop counts a class that a test dropped.
func (d *Decision) drop(by *Test, c *inventory.Class, err error) {
	if d.Dropped == nil {
		d.Dropped = make([]int, len(d.View.Kind.tests))
	}
	d.Dropped[by.at]++
	if by.Reason == reasonCordoned && (d.cordoned == nil || inventory.Compare(c, d.cordoned) < 0) {
		d.cordoned = c
	}
	if err != nil && (d.dropErr == nil || inventory.Compare(c, d.dropErr) < 0) {
		d.DropErr, d.dropErr = err, c
	}
}

// drops reports whether a class does not fit the claim, and why an expression fails. The judgement has the term that says so.
func (f *facts) drops(of *rules.Fit, c *inventory.Class) (bool, error) {
	by, err := f.firstUnmet(of, c)
	f.last.term = by
	return by != nil || err != nil, err
}

func (f *facts) firstUnmet(of *rules.Fit, c *inventory.Class) (by *expression.Expression, why error) {
	if failed, is := f.terms[of]; is {
		return failed.term, failed.err
	}
	for _, e := range of.Equal {
		v := f.values.Of(e)
		met, err := v.Indexed && v.Equals(c), v.Err
		if !met && err == nil {
			met, err = f.bool(e.Term) // It also has the text of an error.
		}
		if !met {
			return e.Term, failedFit(of, err)
		}
	}
	for _, term := range of.Rest {
		if ok, err := f.bool(term); !ok || err != nil {
			return term, failedFit(of, err)
		}
	}
	return nil, nil
}

// fitError is the error of a fit for a class. Its text is made where it is shown: many classes may have one.
type fitError struct {
	field string
	err   error
}

func failedFit(of *rules.Fit, err error) error {
	if err == nil {
		return nil
	}
	return &fitError{of.Field, err}
}

func (e *fitError) Error() string { return "the expression " + e.field + " fails: " + e.err.Error() }

func (e *fitError) Unwrap() error { return e.err }
