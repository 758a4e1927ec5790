package selector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// A chooser is a program that ranks candidates. It is asked once for a decision, after all tests and gates: it learns of no class that the
// claim may not have. Its ranks are used as those of a score are, so whatever it answers, the claim gets a class that the tests leave.

// Question is what a chooser is asked about a claim.
type Question struct {
	Kind *ClaimKind
	// Namespace of the claim, and Key of those that share its part of the calls: the namespace, or the author of claims without one.
	Namespace, Key string
	Seed           uint64
	DryRun, Stored bool
	// Claim has the fields that the chooser learns, as JSON.
	Claim string
	// Candidates are in the order of the draw: one at least, and MaxChooserCandidates at most.
	Candidates []*inventory.Class
}

// Answer of a chooser.
type Answer struct {
	Outcome ChoiceOutcome
	// Unavailable is, with ChooserUnavailable, the reason in a word. OwnDoing reports whether claims of the same key are the cause: the
	// chooser answers others.
	Unavailable string
	OwnDoing    bool
	// Soon reports whether the chooser was not asked because too many others ask: a place is free in a moment.
	Soon bool
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

// ErrOwnDoing means that a chooser is unavailable to a claim because of other claims of its namespace, or of its author.
var ErrOwnDoing = errors.New("because of other claims of the same namespace or author; try again in a moment")

// choose asks the chooser about the candidates from the first on, and gives the claim the best that still has room. A claim that is stored
// waits while the chooser is busy: no request waits for it. Claims of the chooser's own namespace never fail: it may need them to start.
func (d *Decider) choose(ctx context.Context, out *outside, o *order, decision *Decision, first candidate, mode Mode) (err error) {
	kind, ranked := o.view.Kind, []candidate{first}
	shown := kind.Rules.Shown.Claim(o.claim.Object, v1beta1.MaxChooserClaimBytes)
	switch {
	case shown == "" && (kind.External.Service == nil || string(kind.External.Service.Namespace) != o.claim.Namespace):
		read := truncate.String(fmt.Sprint(kind.Rules.Shown.ClaimFields()), v1beta1.MaxShownBytes)
		decision.Claim.Problems = field.ErrorList{{Type: field.ErrorTypeTooLong, Field: "spec", Detail: fmt.Sprintf(
			"the fields that the chooser of claim kind %q reads, %s, must not have more than %d bytes together, as JSON",
			kind.Name, read, v1beta1.MaxChooserClaimBytes)}}
		return nil
	case d.Choose == nil:
		decision.Choice.Outcome = ChooserNotAsked
	default:
		if ranked, err = d.choosable(ctx, out, o, decision, first); err != nil {
			return err
		}
		if decision.Choice = d.ask(ctx, out, o, ranked, shown, mode); decision.Choice.Outcome == ChooserOrdered {
			ranked = decision.Choice.rank(ranked)
		}
	}
	choice := &decision.Choice
	mustAnswer := kind.External.WhenUnavailable == v1beta1.UnavailableFail || mode.Stored && choice.Unavailable == v1beta1.ReasonBusy
	switch {
	case choice.Outcome == ChooserNone:
		return nil
	case choice.Outcome != ChooserUnavailable, choice.Unavailable == v1beta1.ReasonOwnNamespace, !mustAnswer:
	case choice.OwnDoing:
		return fmt.Errorf("the chooser of claim kind %q is unavailable (%s) %w", kind.Name, choice.Unavailable, ErrOwnDoing)
	default:
		return fmt.Errorf("the chooser of claim kind %q is unavailable (%s); try again in a moment", kind.Name, choice.Unavailable)
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
// refuse too many or are slow, these are the first of them. Gates leave the chooser its time.
func (d *Decider) choosable(
	ctx context.Context, out *outside, o *order, decision *Decision, next candidate,
) (all []candidate, err error) {
	problems, unjudged := decision.Claim.Problems, decision.Unjudged
	gates := ctx
	if until := out.until(ctx); !until.IsZero() {
		within, cancel := context.WithDeadline(ctx, until.Add(-o.view.Kind.External.Wait()))
		defer cancel()
		gates = within
	}
	defer func() { decision.Claim.Problems, decision.Unjudged = problems, unjudged }()
	for seat := next.seat; next.class != nil && next.seat == seat; {
		if all = append(all, next); len(all) == v1beta1.MaxChooserCandidates {
			break
		}
		if next = o.next(gates, decision, next.class); next.class != nil {
			next, err = d.admitted(gates, out, o, decision, next)
		}
		switch spent := o.claim.facts != nil && o.claim.facts.budget.Left == 0; {
		case spent, errors.Is(err, errManyRefused), err != nil && gates.Err() != nil && ctx.Err() == nil:
			return all, nil
		case err != nil:
			return nil, err
		}
	}
	return all, nil
}

func (d *Decider) ask(ctx context.Context, out *outside, o *order, candidates []candidate, shown string, mode Mode) Answer {
	question := Question{
		Kind: o.view.Kind, Namespace: o.claim.Namespace, Key: o.claim.Namespace, Seed: o.seed, DryRun: mode.DryRun, Stored: mode.Stored,
		Claim: shown, Candidates: make([]*inventory.Class, len(candidates)),
	}
	if question.Key == "" && o.claim.Requester != nil {
		question.Key = o.claim.Requester.User
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
	case a.Outcome != "" && d.Class == nil:
		return fmt.Sprintf("other claims took the room of all classes that are left for this claim of %q", name)
	case a.Outcome == ChooserUnavailable && a.Unavailable != v1beta1.ReasonOwnNamespace:
		return fmt.Sprintf("the chooser of claim kind %q is unavailable (%s), so that the class was drawn without it", name, a.Unavailable)
	}
	return ""
}
