package selector

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// Decider decides on claims. It alone knows the order of a decision:
//
//  1. guards: a registration at fault decides nothing; a claim is left alone, or invalid; what
//     expressions say of the claim alone (resolver)
//  2. the candidates that the claim asks for and is offered ([View.each])
//  3. the tests of the kind, which drop candidates ([Test])
//  4. the strategy, which puts the rest in order ([strategies])
//  5. the gates, tests that ask others, about the first of them, then the next
//  6. the chooser of a kind that has one, which puts those that are left in another order ([Question])
//  7. the strategy's memory, which commits the decision
//  8. if no class is left, and the claim needs one, the same with newer views ([Waits])
//
// The zero Decider has no gates, reads nothing, waits for nothing, and draws by the identity of claims.
type Decider struct {
	// Gates are the tests that ask others, in this order.
	Gates []Test
	// Patient sets no limit to the classes that gates refuse a claim, and has related objects read for a claim that is stored. It is for a
	// command, whose user waits for it.
	Patient bool
	// Grants are what roles and bindings say, for kinds whose claims may not use all classes. Nil, or nil Grants, know nothing.
	Grants func() *access.Grants
	// Waits lets a claim wait for a newer view, when no known class is left: the class may be new. Nil lets none wait.
	Waits *Waits
	// Broken is why a class kind may have newer classes that are not seen, nil if it has none. A nil function knows of no such kind.
	Broken func(classKind string) error
	// Class reads a class that a claim of this namespace names and that is not known: it may be new. It returns nil if there is none.
	Class func(ctx context.Context, claimNamespace string, kind *inventory.ClassKind, namespace, name string) (*inventory.Class, error)
	// Related does the same with an object. The namespace is ignored for one that has none.
	Related func(ctx context.Context, claimNamespace string, kind *rules.Kind, namespace, name string) (*expression.Object, error)
	// RelatedList reads the objects of a namespace from which a selector selects, in the place of those in the view. Nil reads none.
	RelatedList func(ctx context.Context, kind *rules.Kind, namespace string) (*inventory.Objects, error)
	// Deadline of all that a decision asks of others. It is called only when there is something to ask. Nil is that of the context.
	Deadline func(context.Context) time.Time
	// Choose asks the chooser of a kind that has one. Nil asks none.
	Choose func(context.Context, *Question) Answer
	// Costly waits until a decision that has cost FreeExpressionCost may go on, and returns what to call after it. Nil lets all go on.
	Costly func(ctx context.Context, namespace string) (done func(), err error)
	// Fresh returns a random number. Nil returns 0.
	Fresh func() uint64
	// Now is the clock: what it says when a claim gets its class is when the claim begins to count as in flight. Nil returns zero.
	Now func() time.Time
}

// Mode says what a decision is for. The zero Mode is for a claim that is being created.
type Mode struct {
	// Stored is for a claim that is stored without a class. The decision waits for nothing: a watch shows new classes. It reads nothing,
	// unless the Decider is Patient.
	Stored bool
	// DryRun has no effect on later decisions.
	DryRun bool
}

// Decide on a claim. It returns an error only for a faulty registration, which is a *inventory.Fault, or an unanswered read. The decision
// is dead data: what is said of it later evaluates nothing, and asks no one.
func (d *Decider) Decide(ctx context.Context, view *View, in claim.Intake, mode Mode) (Decision, error) {
	out := outside{decider: d, namespace: in.Namespace}
	defer out.leave()
	decision, facts, err := d.resolve(ctx, &out, view, in, mode)
	if err != nil || !decision.Drawn() {
		return decision, err
	}
	if decision.lacksCompany() != nil { // No class will have the claim, so none is to count it.
		mode.DryRun = true
	}
	if err = d.findOnly(ctx, &out, &decision, facts, mode); err == nil && decision.Drawn() {
		err = d.draw(ctx, &out, &decision, facts, mode)
	}
	if err == nil && !mode.Stored && decision.Class == nil && decision.Drawn() && !decision.Unneeded() && decision.Choice.Outcome == "" {
		err = d.await(ctx, &out, &decision, facts, mode)
	}
	if err == nil {
		d.conclude(ctx, &out, &decision, mode)
	}
	return decision, err
}

// resolve evaluates all that does not depend on the class: the claim may turn out to be left alone or invalid. Its facts are nil for a kind
// without expressions.
func (d *Decider) resolve(
	ctx context.Context, out *outside, view *View, in claim.Intake, mode Mode,
) (decision Decision, f *facts, err error) {
	decision.View, decision.Claim = view, in
	if view.Fault != nil && in.LeftAlone != claim.Settled { // A registration at fault must not refuse what has nothing to decide.
		return decision, nil, view.Fault
	}
	if !decision.Drawn() {
		return decision, nil, nil
	}
	if in.Object == nil {
		return decision, nil, nil
	}
	f = &facts{
		budget: expression.Budget{Left: v1beta1.MaxExpressionCost}, spare: expression.Budget{Left: v1beta1.FreeExpressionCost},
		input: expression.Input{Claim: in.Object},
	}
	if in.Request != nil {
		f.input.Request = in.Request
	}
	resolved := decision.Claim // So the decisions of other kinds stay off the heap.
	r := resolver{out: out, view: view, in: &resolved, mode: mode, facts: f}
	err = r.resolve(ctx)
	f.forClasses = f.budget.Left
	decision.Claim, decision.partition, decision.values = resolved, f.partition, f.values
	return decision, f, err
}

// conclude refuses a claim that the API server would refuse with any class, and adds what one without a class may use.
func (d *Decider) conclude(ctx context.Context, out *outside, decision *Decision, mode Mode) {
	if lacks := decision.lacksCompany(); lacks != nil && decision.Class != nil {
		decision.Class, decision.Claim.Problems = nil, field.ErrorList{lacks}
	}
	if decision.Class == nil && !mode.Stored && decision.Drawn() && decision.View.Kind.Use != "" && !decision.Unneeded() {
		d.addUsable(ctx, out, decision)
	}
}

// draw a class from the view. If the decision counts, the memory of the strategy may have changed meanwhile: then it draws again.
func (d *Decider) draw(ctx context.Context, out *outside, decision *Decision, facts *facts, mode Mode) error {
	kind, claim := decision.View.Kind, Subject{Claim: decision.Claim.Claim, View: decision.View, facts: facts, only: decision.only}
	for {
		began := d.now()
		order := d.order(out, claim, decision, mode)
		best := order.first(ctx, decision)
		if err := decision.settle(claim, best.class != nil); err != nil || !decision.Drawn() {
			return err
		}
		decision.Took += d.now().Sub(began)
		best, err := d.admitted(ctx, out, &order, decision, best)
		if err != nil || !decision.Drawn() {
			return err
		}
		if kind.External != nil && best.class != nil {
			if err := d.choose(ctx, out, &order, decision, best, mode); err != nil || decision.Class != nil {
				return err
			}
			best = candidate{}
		}
		if best.class == nil || mode.DryRun || d.commit(kind, claim.Claim, best) {
			decision.Class = best.class
			if best.class == nil && !mode.Stored && !decision.Claim.Converted {
				decision.Lacks = kind.Reader.Reference.Lacks(decision.Claim.Parents)
			}
			return nil
		}
		decision.forgetDraw()
	}
}

// order of a draw.
func (d *Decider) order(out *outside, claim Subject, decision *Decision, mode Mode) order {
	kind, isGated, fresh := claim.View.Kind, d.isGated(claim.View.Kind), uint64(0)
	if d.Fresh != nil {
		fresh = d.Fresh()
	}
	return order{
		view: claim.View, claim: claim, seed: kind.Seed(claim.Claim, fresh), granted: d.granted(kind, claim.Claim), out: out,
		gated: isGated, hides: kind.Use != "" && (isGated || mode.Stored && mode.DryRun), keeps: isGated || kind.External != nil,
		remembers: isGated || decision.answers != nil || !mode.DryRun && (kind.memory != nil || kind.Limited),
	}
}

// admitted is the first candidate from best on that no gate refuses, without a class if there is none.
func (d *Decider) admitted(
	ctx context.Context, out *outside, order *order, decision *Decision, best candidate,
) (candidate, error) {
	kind, claim := order.view.Kind, order.claim
	for unlikely := 0; best.class != nil && order.keeps; {
		gate, asked := decision.answers[best.class]
		if !asked && !best.admitted && order.gated {
			var err error
			if gate, err = d.refusingInTime(ctx, out, claim, best.class); err != nil {
				return best, err
			}
		}
		if gate == nil && (best.judged || !kind.judges()) {
			break
		}
		last := best
		switch {
		case gate == nil:
			order.admit(best)
		case len(decision.Refused) == v1beta1.MaxRefusals && !asked && !d.Patient:
			return best, errManyRefused
		default:
			if last.unlikely {
				unlikely++
			}
			decision.Refused = append(decision.Refused, Refusal{last.class, gate})
		}
		if unlikely == v1beta1.MaxUnlikelyRefusals {
			order.skipUnlikely(last.seat)
		}
		if best = order.next(ctx, decision, last.class); best.seat != last.seat {
			unlikely = 0
		}
		if err := decision.settle(claim, best.class != nil); err != nil || !decision.Drawn() { // The others were judged again.
			return best, err
		}
	}
	return best, nil
}

// findOnly finds the only class that a claim without a selector may get, where its kind says so (selector.whenAbsent: Only): all tests but
// that for room leave one, and one alone. A full class counts, because other claims fill it: they must not decide what this one gets.
// The walk ends at the second, and what it counts is forgotten, so that no text says how many there are.
func (d *Decider) findOnly(ctx context.Context, out *outside, decision *Decision, facts *facts, mode Mode) error {
	decision.only = nil
	if decision.Claim.Selector != nil || decision.View.Kind.Reader.WhenNoSelector != v1beta1.NoSelectorOnly {
		return nil
	}
	walk := Decision{View: decision.View, Claim: decision.Claim, answers: decision.answers}
	claim := Subject{Claim: walk.Claim.Claim, View: walk.View, facts: facts, every: true}
	order := d.order(out, claim, &walk, mode)
	if !order.keeps {
		order.most = 2
	}
	began := d.now()
	best := order.first(ctx, &walk)
	decision.Took += d.now().Sub(began)
	if err := walk.settle(claim, best.class != nil); err != nil {
		return err
	}
	best, err := d.admitted(ctx, out, &order, &walk, best)
	isOnly := walk.Candidates == 1
	if err == nil && walk.Drawn() && best.class != nil && order.keeps {
		var second candidate
		second, err = d.admitted(ctx, out, &order, &walk, order.next(ctx, &walk, best.class))
		isOnly = second.class == nil
	}
	decision.Claim.Problems = walk.Claim.Problems
	switch {
	case best.class == nil: // The default class is none of those that are left, either: its tests say why.
	case isOnly, order.hides && !order.keeps: // What asks no gate does not know which the claim may use: it may be this one alone.
		decision.only = best.class
	case facts != nil: // What others cost is forgotten, too. The draw has half of the budget at least.
		facts.costly, facts.budget.Left = nil, max(facts.budget.Left, v1beta1.MaxExpressionCost/2)
	}
	return err
}

// commit remembers that a claim gets a candidate. It is false if the draw would end in another way now: by its memory, or for lack of room.
func (d *Decider) commit(k *ClaimKind, c claim.Claim, best candidate) bool {
	if len(best.class.Capacity) > 0 {
		best.class.Kind.Reserving.Lock() // So no two claims of this replica take the same room.
		defer best.class.Kind.Reserving.Unlock()
		if !k.hasRoom(&c, best.class) {
			return false
		}
	}
	if k.memory != nil && !k.memory.commit(c.Namespace, best.class, best.rank) {
		return false
	}
	if k.Counted && k.Tally != nil {
		k.Tally.reserve(c, k.Demand.CountedAs(best.class), k.ShareOf(c.Namespace, c.Usage), d.now())
	}
	return true
}

// settle is the end of a draw, with or without a class. It refuses a claim that made classes costly only if no other class fits: else one
// class could refuse every claim with longer fields. It is an error if neither the claim nor a class is to blame for unjudged ones.
func (d *Decision) settle(claim Subject, found bool) error {
	f := claim.facts
	switch {
	case f == nil:
		return nil
	case f.err != nil:
		return f.err
	case d.Unjudged == 0 && (found || f.costly == nil):
		return nil
	case f.costly == nil:
		length, problem := claim.longest(d.View.Kind.Reader)
		if length <= v1beta1.LongExpressionCost {
			return fmt.Errorf("the expressions of claim kind %q cost too much CPU for so many classes: "+
				"simplify them, or have a term class.FIELD == VALUE select the classes", d.View.Kind.Name)
		}
		f.costly = problem
	}
	d.Claim.Problems = field.ErrorList{f.costly}
	return nil
}

// refusingInTime does the same as refusing, within the deadline of the decision.
func (d *Decider) refusingInTime(ctx context.Context, out *outside, claim Subject, c *inventory.Class) (*Test, error) {
	ctx, cancel := out.context(ctx)
	defer cancel()
	return d.refusing(ctx, claim, c)
}

// refusing returns the first gate that drops a class, nil if none does.
func (d *Decider) refusing(ctx context.Context, claim Subject, c *inventory.Class) (*Test, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cannot ask about more classes: %w", err)
	}
	gate, err := firstDrop(ctx, d.Gates, claim, c)
	if err != nil {
		return nil, fmt.Errorf("cannot determine which classes are %s: %w", gate.Text, err)
	}
	return gate, nil
}

func (d *Decider) isGated(k *ClaimKind) bool {
	return slices.ContainsFunc(d.Gates, func(t Test) bool { return t.isOf(k) })
}

// granted is what roles allow a claim to use, nil if that may be anything.
func (d *Decider) granted(k *ClaimKind, c claim.Claim) *access.Granted {
	if k.Use == "" || d.Grants == nil {
		return nil
	}
	return d.Grants().Of(k.UserOf(c))
}

// addUsable adds the first classes by name that the claim is offered and may use: none if no API server answers, or a review knows no
// roles, because the first that it may use would reveal those before them.
func (d *Decider) addUsable(ctx context.Context, out *outside, decision *Decision) {
	view, in := decision.View, decision.Claim.Claim
	claim, granted := Subject{Claim: in, View: view}, d.granted(view.Kind, in)
	if granted == nil && decision.answers == nil {
		return
	}
	var offered []*inventory.Class
	view.eachOffered(in.Namespace, func(c *inventory.Class) {
		by, _ := firstDrop(ctx, view.Kind.cheap(), claim, c)
		if by == nil && view.likely(granted, in.Namespace, c) {
			offered = append(offered, c)
		}
	})
	slices.SortFunc(offered, inventory.Compare)
	usable := []*inventory.Class{}
	for _, c := range offered[:min(len(offered), v1beta1.MaxAllowedShown)] {
		gate, asked := decision.answers[c]
		if !asked {
			var err error
			if gate, err = d.refusingInTime(ctx, out, claim, c); err != nil {
				return
			}
		}
		if gate == nil {
			usable = append(usable, c)
		}
	}
	if len(usable) > 0 || len(offered) <= v1beta1.MaxAllowedShown {
		decision.Usable = usable
	}
}

func (d *Decider) now() (t time.Time) {
	if d.Now == nil {
		return t
	}
	return d.Now()
}
