package selector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// A chooser is a program that ranks candidates. It is asked once for a decision, after all tests and gates: it learns of no class that the
// claim may not have. Its ranks are used as those of a score are, so whatever it answers, the claim gets a class that the tests leave.

// Question is what a chooser is asked about a claim.
type Question struct {
	Kind *ClaimKind
	// Namespace of the claim.
	Namespace string
	Seed      uint64
	DryRun    bool
	// Claim has the fields that the chooser learns, as JSON.
	Claim string
	// Candidates are in the order of the draw: one at least, and MaxChooserCandidates at most.
	Candidates []*inventory.Class
}

// Answer of a chooser.
type Answer struct {
	Outcome ChoiceOutcome
	// Unavailable is, with ChooserUnavailable, the reason in a word.
	Unavailable string
	// Order has the best candidates first, with ChooserOrdered. Exclusive reports whether the claim may have no other.
	Order     []*inventory.Class
	Exclusive bool
	// Message is why the claim gets none, with ChooserNone.
	Message string
}

// String is the outcome, for programs: with the reason where the chooser is unavailable.
func (a *Answer) String() string {
	if a.Unavailable != "" {
		return string(a.Outcome) + "=" + a.Unavailable
	}
	return string(a.Outcome)
}

// ChoiceOutcome is what came of the question to a chooser. It is empty for a claim without a candidate, or of a kind without a chooser.
type ChoiceOutcome string

// The outcomes.
const (
	ChooserOrdered     ChoiceOutcome = "Order"
	ChooserNone        ChoiceOutcome = "NoClass"
	ChooserNoOpinion   ChoiceOutcome = "NoOpinion"
	ChooserUnavailable ChoiceOutcome = "Unavailable"
	// ChooserNotAsked is that of a Decider without choosers. The claim gets the first candidate of the draw.
	ChooserNotAsked ChoiceOutcome = "NotAsked"
)

var errManyRefused = errors.New(
	"so many of the classes that match are not allowed that the others were not checked: narrow the selector")

// choose asks the chooser about the candidates from the first on, and gives the claim the best that still has room. A claim that is stored
// waits while the chooser is busy: no request waits for it.
func (d *Decider) choose(ctx context.Context, out *outside, o *order, decision *Decision, first candidate, mode Mode) (err error) {
	kind, ranked := o.view.Kind, []candidate{first}
	if d.Choose == nil {
		decision.Choice.Outcome = ChooserNotAsked
	} else {
		if ranked, err = d.choosable(ctx, out, o, decision, first); err != nil {
			return err
		}
		if decision.Choice = d.ask(ctx, out, o, ranked, mode); decision.Choice.Outcome == ChooserOrdered {
			ranked = decision.Choice.rank(ranked)
		}
	}
	isBusy := decision.Choice.Unavailable == v1beta1.ReasonBusy
	switch {
	case decision.Choice.Outcome == ChooserNone:
		return nil
	case decision.Choice.Unavailable != "" && (kind.External.WhenUnavailable == v1beta1.UnavailableFail || mode.Stored && isBusy):
		return fmt.Errorf("the chooser of claim kind %q is unavailable (%s); try again in a moment", kind.Name, decision.Choice.Unavailable)
	}
	for _, c := range ranked {
		if mode.DryRun || d.commit(kind, o.claim.Claim, c) {
			decision.Class = c.class
			break
		}
	}
	return nil
}

// choosable are the candidates that the chooser is asked about, in the order of the draw. Where they cost too much CPU to judge, or gates
// refuse too many, these are the first of them.
func (d *Decider) choosable(
	ctx context.Context, out *outside, o *order, decision *Decision, next candidate,
) (all []candidate, err error) {
	problems, unjudged := decision.Claim.Problems, decision.Unjudged
	defer func() { decision.Claim.Problems, decision.Unjudged = problems, unjudged }()
	for seat := next.seat; next.class != nil && next.seat == seat; {
		if all = append(all, next); len(all) == v1beta1.MaxChooserCandidates {
			break
		}
		if next = o.next(ctx, decision, next.class); next.class != nil {
			next, err = d.admitted(ctx, out, o, decision, next)
		}
		switch spent := o.claim.facts != nil && o.claim.facts.budget.Left == 0; {
		case spent, errors.Is(err, errManyRefused):
			return all, nil
		case err != nil:
			return nil, err
		}
	}
	return all, nil
}

func (d *Decider) ask(ctx context.Context, out *outside, o *order, candidates []candidate, mode Mode) Answer {
	kind := o.view.Kind
	question := Question{
		Kind: kind, Namespace: o.claim.Namespace, Seed: o.seed, DryRun: mode.DryRun, Claim: kind.Rules.Shown.Claim(o.claim.Object),
		Candidates: make([]*inventory.Class, len(candidates)),
	}
	for i, c := range candidates {
		question.Candidates[i] = c.class
	}
	ctx, cancel := out.context(ctx)
	defer cancel()
	return d.Choose(ctx, &question)
}

// rank the candidates that the answer names first, in its order. The others follow in the order of the draw, or are left out.
func (a *Answer) rank(candidates []candidate) []candidate {
	ranks := make(map[*inventory.Class]int, len(a.Order))
	for i, c := range a.Order {
		if _, has := ranks[c]; !has {
			ranks[c] = i - len(a.Order)
		}
	}
	if a.Exclusive {
		candidates = slices.DeleteFunc(candidates, func(c candidate) bool { return ranks[c.class] == 0 })
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return ranks[a.class] - ranks[b.class] })
	return candidates
}

// choiceText says what the author of the claim, or the cluster's admins, should know of the chooser; empty, nothing.
func (d *Decision) choiceText() string {
	name := d.View.Kind.Name
	switch a := &d.Choice; {
	case a.Outcome == ChooserNone && a.Message == "":
		return fmt.Sprintf("the chooser of claim kind %q gives this claim no class", name)
	case a.Outcome == ChooserNone:
		return fmt.Sprintf("the chooser of claim kind %q gives this claim no class: %q", name,
			truncate.String(a.Message, v1beta1.MaxChooserMessageBytes))
	case a.Outcome == ChooserOrdered && d.Class == nil:
		return fmt.Sprintf("the chooser of claim kind %q gives this claim only classes without room", name)
	case a.Outcome == ChooserUnavailable:
		return fmt.Sprintf("the chooser of claim kind %q is unavailable (%s), so that the class was drawn without it", name, a.Unavailable)
	}
	return ""
}
