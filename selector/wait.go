package selector

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
)

// WaitOutcome is what came of waiting for a newer view.
type WaitOutcome int

// The outcomes. NotWaited is that of a claim that needs no newer view, and WaitRefused that of one that is answered at once, because too
// many wait.
const (
	NotWaited WaitOutcome = iota
	WaitFound
	WaitNone
	WaitRefused
)

// Waits are those of claims for a newer view, because no known class is left: a class and the claim for it may be applied together, and the
// claim come to a replica that has not seen the class yet. A wait costs no request, and nothing while no class changes.
type Waits struct {
	snapshot func() Snapshot
	limiter  *fair.Limiter
}

func newWaits(snapshot func() Snapshot) *Waits {
	return &Waits{snapshot, fair.NewLimiter(v1beta1.ClassWaits)}
}

// await decides again on each newer view, while the claim may wait. Without a class, it is an error that there may be one which a broken
// watch does not show.
func (d *Decider) await(ctx context.Context, out *outside, decision *Decision, facts *facts, mode Mode) error {
	if d.Waits != nil {
		if err := d.drawAgain(ctx, out, decision, facts, mode); err != nil || decision.Class != nil || !decision.Drawn() {
			return err
		}
	}
	for _, s := range decision.View.Classes {
		if d.Broken == nil {
			break
		}
		if err := d.Broken(s.Kind.Name); err != nil {
			return fmt.Errorf("no known class is left for the claim, and the API server no longer reports the classes of %q: %w",
				s.Kind.Name, err)
		}
	}
	return nil
}

func (d *Decider) drawAgain(ctx context.Context, out *outside, decision *Decision, facts *facts, mode Mode) error {
	asking, cancel := out.context(ctx)
	defer cancel()
	waiting, cancel := context.WithTimeout(asking, v1beta1.MaxClassWait)
	defer cancel()
	done, err := d.Waits.limiter.Take(waiting, decision.Claim.Namespace)
	if err != nil {
		decision.Waited = WaitRefused
		return nil
	}
	defer done()
	decision.Waited = WaitNone
	for pause := time.Duration(0); waiting.Err() == nil; {
		select {
		case <-waiting.Done():
		case <-time.After(pause):
			select {
			case <-waiting.Done():
			case <-decision.View.replaced:
			}
		}
		before, view := decision.View, d.Waits.snapshot()[decision.View.Kind.Name]
		switch {
		case view == nil || view == before || view.Kind != before.Kind: // Another registration may read the claim in another way.
			return nil
		case view.Fault != nil:
			return view.Fault
		case facts != nil && !slices.EqualFunc(view.All, before.All, func(a, b *inventory.Classes) bool { return a.Kind == b.Kind }):
			return nil // They say nothing of another kind's expressions.
		case facts != nil:
			facts.budget.Left, facts.spare.Left, facts.judged = facts.forClasses, v1beta1.FreeExpressionCost, nil
		}
		began := d.now()
		decision.forgetDraw()
		decision.View = view
		if err := d.findOnly(ctx, out, decision, facts, mode); err != nil || !decision.Drawn() {
			return err
		}
		if err := d.draw(ctx, out, decision, facts, mode); err != nil || !decision.Drawn() {
			return err
		}
		if decision.Class != nil {
			decision.Waited = WaitFound
		}
		if decision.Class != nil || decision.Choice.Outcome != "" { // A chooser is asked once.
			return nil
		}
		pause = max(v1beta1.MinClassWaitPause, time.Duration(v1beta1.ClassWaits.InFlight)*d.now().Sub(began))
	}
	return nil
}

// outside is what one decision takes of others: its deadline, and its place among the costly decisions. Most need neither.
type outside struct {
	decider   *Decider
	namespace string // of the claim
	deadline  time.Time
	done      func() // gives the place back; nil without one
}

// enter waits for a place among the costly decisions, unless this one has it.
func (o *outside) enter(ctx context.Context) (err error) {
	if o.decider.Costly != nil && o.done == nil {
		ctx, cancel := o.context(ctx)
		defer cancel()
		o.done, err = o.decider.Costly(ctx, o.namespace)
	}
	return err
}

// leave gives the place back.
func (o *outside) leave() {
	if o.done != nil {
		o.done()
		o.done = nil
	}
}

// context for a question. The place is given back while it is asked: that may take long.
func (o *outside) context(ctx context.Context) (context.Context, context.CancelFunc) {
	o.leave()
	if o.until(ctx).IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, o.deadline)
}

// until is the deadline, zero without one.
func (o *outside) until(ctx context.Context) time.Time {
	if o.deadline.IsZero() && o.decider.Deadline != nil {
		o.deadline = o.decider.Deadline(ctx)
	}
	return o.deadline
}
