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

// Reasons for which a claim may not have a class that it names, beside those of filters.
const (
	reasonNotFound   = "NotFound"
	reasonNotOffered = "NotOffered"
	reasonOtherKind  = "OtherKind"
)

// drawOnly are the reasons of filters that keep a class from the draw alone: a claim may name it. Names are looked for
// in the order of the kinds, so the class of one is not shadowed by what is known.
var drawOnly = []string{"TooManyLabels", reasonWeightZero, reasonNoScore, reasonShadowed}

// Refused is why a claim may not have the class that it names.
type Refused struct{ Class, Reason, Text string }

func (r *Refused) Error() string {
	return fmt.Sprintf("it names the class %q, which is %s", r.Class, r.Text)
}

// Check whether a claim may have the class that it names, as it was read by ReadNamed. It returns what became of the claim, and the reason
// why it may not, nil if it may. The selector of the claim does not count. The error is like that of Decide.
func (d *Decider) Check(ctx context.Context, v *View, in claim.Intake, object map[string]any) (claim.Intake, *Refused, error) {
	if v.Fault != nil {
		return in, nil, v.Fault
	}
	deadline := lazyDeadline{Decider: d, ctx: ctx, namespace: in.Namespace}
	defer deadline.end()
	var facts *facts
	var err error
	if in.LeftAlone == "" && len(in.Problems) == 0 {
		in, facts, err = deadline.resolve(v, in, Admit) //nolint:contextcheck // It is in deadline.
	}
	if err != nil || in.LeftAlone != "" || len(in.Problems) > 0 {
		return in, nil, err
	}
	refused, err := deadline.checkNamed(subject{in.Claim, facts, v}, object) //nolint:contextcheck // It is in deadline.
	return in, refused, err
}

func (d *lazyDeadline) checkNamed(claimant subject, object map[string]any) (*Refused, error) {
	v, namespace := claimant.view, claimant.Namespace
	to, _ := v.Kind.RefersTo(object)
	refused := &Refused{shownTarget(to), reasonOtherKind, "of a kind whose classes no claim of " + v.Kind.Name + " is offered"}
	type place struct {
		classes   *inventory.Classes
		namespace string
	}
	var places []place
	for s, in := range v.Kind.Named(v.All, namespace, to) {
		switch {
		case v.Kind.Offers(namespace, in):
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
			known, err := d.refuses(claimant, c)
			if err != nil || known == nil || d.Class == nil {
				return known, err
			}
			break // The name means this class, which may have been mended since.
		}
	}
	if d.Class == nil {
		places = nil
	}
	for _, p := range places { // The watch may be behind that of the replica that gave the class, or behind who just mended it.
		c, err := d.Class(d.context(), namespace, p.classes.Kind, p.namespace, to.Name)
		if err != nil {
			return nil, err
		}
		if c != nil {
			return d.refuses(claimant, c)
		}
	}
	namesKind := refused.Reason == reasonNotFound && v.Kind.Form.NamesKind == claim.GroupAndKind
	if len(v.Unread) > 0 && refused.Reason != reasonNotOffered && !namesKind { // Nobody knows.
		return nil, nil
	}
	return refused, nil
}

// shownTarget is how a text names what a claim refers to.
func shownTarget(to claim.Target) string {
	return truncate.String(cmp.Or(to.Kind, "class")+"/"+to.Name, v1beta1.MaxShownBytes)
}

// refuses says why a claim may not name a class, nil if it may. The error is that of waiting for a turn.
func (d *lazyDeadline) refuses(claim subject, c *inventory.Class) (*Refused, error) {
	refused := func(reason, text string, err error) (*Refused, error) {
		drop := newDrop(c, reason, text, err)
		return &Refused{c.String(), drop.Reason, drop.Text}, nil
	}
	kind := claim.view.Kind
	if by, _, err := kind.Unmet(c); by != nil {
		return refused(by.Name, by.Text, err)
	}
	for _, f := range kind.filters[:kind.free] {
		if dropped, err := f.drops(claim, c); (dropped || err != nil) && !slices.Contains(drawOnly, f.reason) {
			if f.reason == reasonFull && kind.Tally != nil && kind.Tally.isInFlight(claim.Claim, kind.CountedAs(c)) {
				continue // It was given the class just before, and counts already.
			}
			return refused(f.reason, f.text, err)
		}
	}
	if kind.judges() {
		i, err := kind.judgeInTurn(claim, c, d)
		if claim.facts.err != nil {
			return nil, claim.facts.err
		}
		if i >= 0 && !slices.Contains(drawOnly, kind.filters[i].reason) {
			return refused(kind.filters[i].reason, kind.filters[i].text, err)
		}
	}
	return nil, nil
}
