package selector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

// Explain decides without any effect, and gathers the reasons: it looks at every class that the claim is offered. It says nothing about
// other classes, which the claim's author may not be allowed to know. It has no reasons for a claim that is left alone or has problems. It
// asks the gates about every candidate, several at once.
func (d *Decider) Explain(ctx context.Context, v *View, in claim.Intake) (e Explanation, err error) {
	out, dryRun := outside{decider: d, namespace: in.Namespace}, Mode{DryRun: true}
	defer out.leave()
	defer func() { e.facts = nil }()
	if e.Decision, e.facts, err = d.resolve(ctx, &out, v, in, dryRun); err == nil && e.Decision.Drawn() {
		if err = d.findOnly(ctx, &out, &e.Decision, e.facts, dryRun); err == nil && e.Decision.Drawn() {
			subject := e.subject()
			subject.every = e.Decision.only != nil // To say why it is not offered the others.
			e.Decision.answers, err = d.askAll(ctx, &out, subject)
		}
		if err == nil && e.Decision.Drawn() {
			err = d.draw(ctx, &out, &e.Decision, e.facts, dryRun)
		}
	}
	if err != nil {
		return e, err
	}
	e.addFacts(in)
	d.conclude(ctx, &out, &e.Decision, dryRun)
	if !e.Decision.Drawn() {
		return e, nil
	}
	if user := v.Kind.UserOf(e.Decision.Claim.Claim); user != nil && d.isGated(v.Kind) {
		e.UsableBy = user.String()
	}
	if e.facts != nil { // The decision had its budget.
		e.facts.budget.Left, e.facts.err, e.facts.remembers = math.MaxUint64, nil, true
	}
	e.addOthers(ctx, e.addCandidates(ctx))
	e.addUnserving()
	slices.SortFunc(e.Dropped, func(a, b Drop) int { return inventory.Compare(a.Class, b.Class) })
	for i := range e.Dropped {
		e.Dropped[i].ClassName = NameOf(e.Dropped[i].Class)
	}
	e.setOdds()
	slices.SortFunc(e.Candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Odds.Share, a.Odds.Share), inventory.Compare(a.Class, b.Class))
	})
	isCertain := v.Kind.External == nil && // A chooser may also give none.
		(len(e.Candidates) <= 1 || e.Candidates[0].Odds.Total > 0 && e.Candidates[0].Odds.Share == e.Candidates[0].Odds.Total)
	e.Reproducible = isCertain || v.Kind.Strategy.Depends == "" && !v.Kind.DrawsAfresh(e.Decision.Claim.Claim)
	return e, d.addMissRefusals(ctx, &e)
}

// addCandidates adds what the claim asks for, and returns it. Where it may not use all classes, it has defaults of all seats: those of the
// first seat with one that it may use are its candidates.
func (e *Explanation) addCandidates(ctx context.Context) (asked map[*inventory.Class]bool) {
	asked = map[*inventory.Class]bool{}
	seats, first := map[*inventory.Class]int8{}, int8(math.MaxInt8)
	e.Decision.View.each(e.subject(), func(c *inventory.Class, seat int8) (left bool) {
		asked[c] = true
		drop := e.drops(ctx, c)
		if left = drop == nil; left {
			drop = e.Decision.answers[c].drop(c)
		}
		if drop != nil {
			e.Dropped = append(e.Dropped, *drop)
			return left
		}
		e.Candidates = append(e.Candidates, e.candidate(c))
		seats[c], first = seat, min(first, seat)
		return left
	})
	e.Candidates = slices.DeleteFunc(e.Candidates, func(c Candidate) bool {
		if seats[c.Class] > first {
			e.Dropped = append(e.Dropped, e.otherSeat(c.Class))
		}
		return seats[c.Class] > first
	})
	return asked
}

// askAll asks the gates about all candidates, which costs the decision nothing of its budget.
func (d *Decider) askAll(ctx context.Context, out *outside, claim Subject) (map[*inventory.Class]*Test, error) {
	if f := claim.facts; f != nil {
		defer func(left uint64, costly *field.Error) { f.budget.Left, f.costly = left, costly }(f.budget.Left, f.costly)
		f.budget.Left, f.remembers = math.MaxUint64, true
	}
	var candidates []*inventory.Class
	claim.View.each(claim, func(c *inventory.Class, _ int8) bool {
		by, _ := claim.View.Kind.firstDrop(ctx, claim, c)
		if by == nil {
			candidates = append(candidates, c)
		}
		return by == nil
	})
	ctx, cancel := out.context(ctx)
	defer cancel()
	return d.answers(ctx, claim, candidates)
}

// answers of the gates about classes: for each, the first that refuses it, or nil. As many are asked at once as one namespace may ask.
func (d *Decider) answers(ctx context.Context, claim Subject, about []*inventory.Class) (map[*inventory.Class]*Test, error) {
	gates := make([]*Test, len(about))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(v1beta1.AccessReviews.PerKey)
	for i, c := range about {
		group.Go(recovered.Func(func() (err error) {
			gates[i], err = d.refusing(ctx, claim, c)
			return err
		}))
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	answers := make(map[*inventory.Class]*Test, len(about))
	for i, c := range about {
		answers[c] = gates[i]
	}
	return answers, nil
}

// newDrop by a test or a fit. An error says why an expression has no result.
func newDrop(c *inventory.Class, reason, text string, err error) *Drop {
	if failed := (*fitError)(nil); errors.As(err, &failed) { // Its expression is shown beside it.
		err = failed.err
	}
	if err != nil {
		text += ": " + truncate.String(expression.Detail(err), v1beta1.MaxMessageBytes)
	}
	return &Drop{Class: c, Reason: reason, Text: text}
}

func (e *Explanation) subject() Subject {
	d := &e.Decision
	return Subject{Claim: d.Claim.Claim, View: d.View, facts: e.facts, only: d.only}
}

// looksAt is the selector of the classes among which the claim gets its own: nil is for the default classes.
func (e *Explanation) looksAt() labels.Selector {
	if e.Decision.only != nil {
		return labels.Everything()
	}
	return e.Decision.asks()
}

// drops says why a test of the kind drops a class, nil if none does.
func (e *Explanation) drops(ctx context.Context, c *inventory.Class) *Drop {
	kind, claim := e.Decision.View.Kind, e.subject()
	by, err := kind.firstDrop(ctx, claim, c)
	if by == nil {
		return nil
	}
	drop := newDrop(c, by.Reason, by.Text, err)
	switch offerWhen := c.Kind.ForClaims.OfferWhen; {
	case drop.Reason == reasonFull:
		drop.Text = kind.fullText(&claim.Claim, c)
	case drop.Reason == "NotOffered" && offerWhen != nil:
		drop.Expression = offerWhen.String() // What it saw is not held.
	case by.at > kind.free && e.facts.last.term != nil:
		_ = e.facts.see(e.Decision.View, c) // The budget is not limited.
		drop.Expression, drop.Saw = e.facts.last.term.String(), e.saw(e.facts.last.term, c)
	}
	return drop
}

// drop by a gate is why the claim may not get a class, nil of a nil gate.
func (t *Test) drop(c *inventory.Class) *Drop {
	if t == nil {
		return nil
	}
	return &Drop{Class: c, Reason: t.Reason, Text: t.Text}
}

// setOdds derives the odds from how the strategy places a candidate. One with the highest rank wins. There, the key is -ln(u) divided by
// the candidate's share, so u = 1/2 gives the share, a whole number.
func (e *Explanation) setOdds() {
	kind := e.Decision.View.Kind
	if kind.Strategy.Depends != "" {
		return
	}
	var total, highest int64
	ranks := make([]int64, len(e.Candidates))
	for i := range e.Candidates {
		c := &e.Candidates[i]
		rank, key := kind.Strategy.place(0.5, c.Class.Weight)
		if kind.Rules.Score != nil {
			rank = c.rank
		}
		if i == 0 || rank > highest {
			total, highest = 0, rank
		}
		ranks[i] = rank
		if rank == highest {
			c.Odds.Share = int64(math.Round(math.Ln2 / key))
			total += c.Odds.Share
		}
	}
	for i := range e.Candidates {
		if ranks[i] < highest {
			e.Candidates[i].Odds.Share = 0
		}
		e.Candidates[i].Odds.Total = total
	}
}

// addOthers adds the offered classes that the claim does not ask for. Without a selector, these are the defaults of other seats, and those
// that are not default. With one, these are the classes that it matches and the index did not find, because an equality term is not true
// of them, and those that it does not match.
func (e *Explanation) addOthers(ctx context.Context, asked map[*inventory.Class]bool) {
	d, selector := &e.Decision, e.looksAt()
	var requirements labels.Requirements
	if selector != nil {
		requirements, _ = selector.Requirements()
	}
	d.View.eachOffered(d.Claim.Namespace, func(c *inventory.Class) {
		switch {
		case asked[c]:
			return
		case selector == nil && !c.Default:
			e.NotDefault++
			return
		case selector == nil:
			e.Dropped = append(e.Dropped, e.otherSeat(c))
			return
		}
		unmet := slices.DeleteFunc(slices.Clone(requirements), func(r labels.Requirement) bool { return r.Matches(c.Labels) })
		var drop *Drop
		if len(unmet) < 2 {
			if drop = e.drops(ctx, c); drop == nil {
				drop = d.answers[c].drop(c)
			}
		}
		switch {
		case len(unmet) == 0 && drop != nil:
			e.Dropped = append(e.Dropped, *drop)
			return
		case len(unmet) != 1:
			e.FarMisses++
			return
		}
		r := &unmet[0]
		miss := NearMiss{ClassName: NameOf(c), Class: c, Drop: drop, Unmet: Requirement{
			Key: r.Key(), Operator: r.Operator(), Values: slices.Sorted(slices.Values(r.ValuesUnsorted())), Text: r.String(),
		}}
		if value, has := c.Labels.Lookup(r.Key()); has {
			miss.Value = &value
		}
		e.NearMisses = append(e.NearMisses, miss)
	})
	slices.SortFunc(e.NearMisses, compareMisses)
}

// addMissRefusals asks the gates about the first near misses, and puts those that are refused behind the others of these.
func (d *Decider) addMissRefusals(ctx context.Context, e *Explanation) error {
	if !d.isGated(e.Decision.View.Kind) {
		return nil
	}
	first := e.NearMisses[:min(len(e.NearMisses), v1beta1.MaxRefusals)]
	var about []*inventory.Class
	for i := range first {
		if first[i].Drop == nil {
			about = append(about, first[i].Class)
		}
	}
	answers, err := d.answers(ctx, e.subject(), about)
	if err != nil {
		return err
	}
	for i := range first {
		first[i].Drop = cmp.Or(first[i].Drop, answers[first[i].Class].drop(first[i].Class))
	}
	slices.SortFunc(first, compareMisses)
	return nil
}

// compareMisses puts those first for which more terms hold: nothing but the selector keeps them out.
func compareMisses(a, b NearMiss) int {
	switch {
	case (a.Drop == nil) == (b.Drop == nil):
		return inventory.Compare(a.Class, b.Class)
	case a.Drop == nil:
		return -1
	default:
		return 1
	}
}

// addFacts adds what expressions say of the claim, in the order of their evaluation, up to the first that fails. Those that look at nothing
// but the claim were evaluated when it was read.
func (e *Explanation) addFacts(read claim.Intake) {
	in, kind, facts := &e.Decision.Claim, e.Decision.View.Kind, e.facts
	if in.Object == nil {
		return
	}
	seen, resolved := &expression.Input{Claim: in.Object}, facts != nil
	if resolved {
		seen = &facts.input
		for i := range kind.Rules.Related {
			r := &kind.Rules.Related[i]
			e.Related = append(e.Related, newRelatedObject(r.Kind, facts.names[r.Kind.Name], seen.Related[r.Kind.Name]))
		}
	}
	for _, x := range []struct {
		of        *expression.Expression
		to        **Evaluation
		evaluated bool
	}{
		{kind.Rules.BindWhen, &e.BindWhen, resolved || !kind.Reader.AsksOthers()},
		{kind.Rules.SelectorFrom, &e.SelectorFrom, resolved && in.LeftAlone != claim.NotYet && read.Selector == nil},
		{kind.Rules.PartitionOf, &e.Partition, resolved && in.LeftAlone == "" && kind.Reader.Asks(in.Claim) == nil},
		{kind.Rules.Seed, &e.Seed, resolved && in.LeftAlone == ""},
	} {
		if x.of == nil || !x.evaluated {
			continue
		}
		if *x.to = evaluation(x.of, seen); (*x.to).Error != "" {
			return
		}
	}
	for _, u := range kind.Rules.Usage {
		if !resolved || in.LeftAlone != "" {
			return
		}
		e.Usage = append(e.Usage, UsageEvaluation{u.Of, *evaluation(u.Expression, seen)})
	}
}

// otherSeat says why a default class does not count for the claim.
func (e *Explanation) otherSeat(c *inventory.Class) Drop {
	kind := e.Decision.View.Kind
	of, text, err := "", "", error(nil)
	if kind.Rules.PartitionClass != nil {
		of, err = kind.Demand.PartitionFor(c)
	}
	switch {
	case err != nil:
		text = "of an unknown partition"
	case kind.Rules.PartitionClass == nil || of == e.Decision.partition:
		return *newDrop(c, "NotOfNamespace", "the default of namespaces that have none of their own", nil)
	case of == "":
		text = "the default of partitions that have none of their own"
	default:
		text = fmt.Sprintf("the default of partition %q", truncate.String(of, v1beta1.MaxShownBytes))
	}
	drop := newDrop(c, "NotOfPartition", text, err)
	drop.Expression, drop.Saw = kind.Rules.PartitionClass.String(), kind.Rules.PartitionClass.Saw(&expression.Input{Class: c.Fields})
	return *drop
}

func (e *Explanation) candidate(c *inventory.Class) Candidate {
	candidate := Candidate{ClassName: NameOf(c), Class: c, Weight: c.Weight}
	if c.WeightErr != nil {
		candidate.WeightError = c.WeightErr.Error()
	}
	if e.Decision.View.Kind.Rules.Score != nil {
		candidate.Score, candidate.rank = e.facts.last.score, e.facts.last.rank
	}
	return candidate
}

// addUnserving adds the classes that cannot serve claims of the kind at all, and would be asked about otherwise.
func (e *Explanation) addUnserving() {
	v, selector := e.Decision.View, e.looksAt()
	for i, s := range v.All {
		if v.Classes[i] == s {
			continue
		}
		s.EachOffered(&v.Kind.Demand.Reach, e.Decision.Claim.Namespace, func(c *inventory.Class) {
			by, term, err := v.Kind.Demand.Unmet(c)
			if by == nil || selector == nil && !c.Default || selector != nil && !selector.Matches(&c.Labels) {
				return
			}
			drop := newDrop(c, by.Name, by.Text, nil)
			if err != nil {
				drop = newDrop(c, reasonFailed, failedText, err)
			}
			drop.Expression, drop.Saw = term.String(), term.Saw(&expression.Input{Class: c.Fields})
			e.Dropped = append(e.Dropped, *drop)
		})
	}
}
