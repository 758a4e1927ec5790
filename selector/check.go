package selector

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// Reasons for which a claim may not have a class that it names, beside those of tests.
const (
	reasonNotFound   = "NotFound"
	reasonNotOffered = "NotOffered"
	reasonOtherKind  = "OtherKind"
	reasonTooMany    = "TooManyReferences"
)

// Refused is why a claim may not have the class that it names. Class is empty if the classes cannot be read, and
// At is the element of a list that names it.
type Refused struct{ Class, Reason, Text, At string }

func (r *Refused) Error() string {
	if r.Class == "" {
		return r.Text
	}
	return fmt.Sprintf("%s names the class %q, which is %s", cmp.Or(r.At, "it"), r.Class, r.Text)
}

// Check whether a claim may have the classes that it names, as it was read by ReadNamed. Those that it named before are not checked. It
// returns what became of the claim, and the reason why it may not, nil if it may. The selector of the claim does not count. The error is
// like that of Decide.
func (d *Decider) Check(
	ctx context.Context, v *View, in claim.Intake, object map[string]any, before []claim.Target,
) (claim.Intake, *Refused, error) {
	out := outside{decider: d, namespace: in.Namespace}
	defer out.leave()
	decision, facts, err := d.resolve(ctx, &out, v, in, Mode{})
	if err != nil || !decision.Drawn() {
		return decision.Claim, nil, err
	}
	named, at, ok := v.Kind.Reader.Reference.Named(object)
	if !ok {
		const format = "its class reference .%s is no list, or has more than %d different classes, or is too long to read"
		text := fmt.Sprintf(format, v.Kind.Reader.Reference.Path, v1beta1.MaxListedReferences)
		return decision.Claim, &Refused{Reason: reasonTooMany, Text: text}, nil
	}
	for i, to := range named {
		if slices.Contains(before, to) {
			continue
		}
		refused, err := d.checkNamed(ctx, &out, Subject{Claim: decision.Claim.Claim, View: v, facts: facts}, to)
		if refused != nil && i < len(at) {
			refused.At = truncate.String(at[i], v1beta1.MaxShownBytes)
		}
		if refused != nil || err != nil {
			return decision.Claim, refused, err
		}
	}
	return decision.Claim, nil, nil
}

func (d *Decider) checkNamed(ctx context.Context, out *outside, claimant Subject, to claim.Target) (*Refused, error) {
	v, namespace := claimant.View, claimant.Namespace
	named := truncate.String(cmp.Or(to.Kind, "class")+"/"+to.Name, v1beta1.MaxShownBytes)
	refused := &Refused{Class: named, Reason: reasonOtherKind, Text: "of a kind whose classes no claim of " + v.Kind.Name + " is offered"}
	type place struct {
		classes   *inventory.Classes
		namespace string
	}
	var places []place
	for s, in := range v.Kind.Demand.Named(v.All, namespace, to) {
		switch {
		case v.Kind.Demand.Reach.Offers(namespace, in):
			refused.Reason, refused.Text = reasonNotFound, "not there"
			if !s.Kind.Namespaced || in != "" { // Else the claim has no namespace, and no class is there.
				places = append(places, place{s, in})
			}
		case refused.Reason != reasonNotFound: // Whether it is there is not for the author to know.
			refused.Reason = reasonNotOffered
			refused.Text = fmt.Sprintf("in a namespace whose classes claims of %q are not offered", namespace)
		}
	}
	for _, p := range places {
		if c := p.classes.Find(p.namespace, to.Name); c != nil {
			known, err := refuses(ctx, out, claimant, c)
			if err != nil || known == nil || d.Class == nil {
				return known, err
			}
			break // The name means this class, which may have been mended since.
		}
	}
	if d.Class == nil {
		places = nil
	}
	asking, cancel := out.context(ctx)
	defer cancel()
	for _, p := range places { // The watch may be behind that of the replica that gave the class, or behind who just mended it.
		c, err := d.Class(asking, namespace, p.classes.Kind, p.namespace, to.Name)
		if err != nil {
			return nil, err
		}
		if c != nil {
			c, _ = c.Derived(v.Related, nil)
			return refuses(ctx, out, claimant, c)
		}
	}
	namesKind := refused.Reason == reasonNotFound && v.Kind.Reader.Reference.Form.NamesKind == claim.GroupAndKind
	if len(v.Unread) > 0 && refused.Reason != reasonNotOffered && !namesKind { // It is unknown.
		return nil, nil
	}
	return refused, nil
}

// refuses says why a claim may not name a class, nil if it may. The error is that of waiting for a turn.
func refuses(ctx context.Context, out *outside, claim Subject, c *inventory.Class) (*Refused, error) {
	refused := func(reason, text string, err error) (*Refused, error) {
		drop := newDrop(c, reason, text, err)
		return &Refused{Class: c.String(), Reason: drop.Reason, Text: drop.Text}, nil
	}
	kind := claim.View.Kind
	if by, _, err := kind.Demand.Unmet(c); by != nil {
		return refused(by.Name, by.Text, err)
	}
	for tests := kind.cheap(); ; {
		by, err := firstDrop(ctx, tests, claim, c)
		if by == nil {
			break
		}
		isOwn := by.Reason == reasonFull && kind.Tally != nil && kind.Tally.isInFlight(claim.Claim, kind.Demand.CountedAs(c))
		if !by.drawOnly && !isOwn { // Its own was given to it just before, and counts already.
			return refused(by.Reason, by.Text, err)
		}
		tests = kind.tests[by.at+1 : kind.free]
	}
	if kind.judges() {
		by, err := kind.judgeInTurn(ctx, claim, c, out)
		if claim.facts.err != nil {
			return nil, claim.facts.err
		}
		if by != nil && !by.drawOnly {
			return refused(by.Reason, by.Text, err)
		}
	}
	return nil, nil
}
