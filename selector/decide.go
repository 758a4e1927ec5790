package selector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// Decider decides on claims. It alone knows the order of a decision:
//
//  1. guards: a registration at fault decides nothing; a claim is left alone, or invalid; what
//     expressions say of the claim alone (resolver)
//  2. the candidates that the claim asks for and is offered ([View.each])
//  3. the filters, which drop candidates ([filters])
//  4. the strategy, which puts the rest in order ([strategies])
//  5. the gates, which are asked about the first of them, then the next
//  6. the strategy's memory, which commits the decision
//  7. if no class is left, and the claim needs one, the same with newer views ([Waits])
//
// The zero Decider has no gates, reads nothing, waits for nothing, and draws by the identity of claims.
type Decider struct {
	// Gates are asked in this order.
	Gates []Gate
	// Patient sets no limit to the classes that gates refuse a claim. It is for a command, whose user waits for it.
	Patient bool
	// Grants are what roles and bindings say, for kinds whose claims may not use all classes. Nil, or nil Grants, know nothing.
	Grants func() *access.Grants
	// Waits lets a claim wait for a newer view, when no known class is left: the class may be new. Nil lets none wait.
	Waits *Waits
	// Broken is why a class kind may have newer classes that nobody hears of, nil if it has none. A nil function knows of no such kind.
	Broken func(classKind string) error
	// Class reads a class that a claim of this namespace names and that is not known: it may be new. It returns nil if there is none.
	Class func(ctx context.Context, claimNamespace string, kind *inventory.ClassKind, namespace, name string) (*inventory.Class, error)
	// Related does the same with an object. The namespace is ignored for one that has none.
	Related func(ctx context.Context, claimNamespace string, kind *rules.Kind, namespace, name string) (*expression.Object, error)
	// Deadline of all that a decision asks of others. It is called only when there is something to ask. Nil is that of the context.
	Deadline func(context.Context) time.Time
	// Costly waits until a decision that has cost FreeExpressionCost may go on, and returns what to call after it. Nil lets all go on.
	Costly func(ctx context.Context, namespace string) (done func(), err error)
	// Fresh returns a random number. Nil returns 0.
	Fresh func() uint64
	// Now returns the time from which a claim counts as in flight. Nil returns zero.
	Now func() time.Time
}

// Mode says what a decision is for. The zero Mode is for a claim that is being created.
type Mode struct {
	// Stored is for a claim that is stored without a class. The decision reads nothing, and waits for nothing: a watch shows new classes.
	Stored bool
	// DryRun has no effect on later decisions.
	DryRun bool
}

// Gate is asked what no filter can tell of a class: may its author use it, is there room? If it refuses, the next class is drawn.
type Gate struct {
	// Of reports whether the gate has to do with the claims of a kind. Nil means all.
	Of func(*ClaimKind) bool
	// Reason is one word, for programs. Text reads after a number of classes, and after "is".
	Reason, Text string
	// Admits may ask others, until the context ends, and may be asked about a class again. An error ends the decision, because nobody knows
	// then. To explain a decision, several goroutines call it at once.
	Admits func(context.Context, *View, claim.Claim, *inventory.Class) (bool, error)
}

// Decide on a claim. It returns an error only for a faulty registration, which is a *inventory.Fault, or an unanswered read. The decision
// is dead data: what is said of it later evaluates nothing, and asks nobody.
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
	err = d.draw(ctx, &out, &decision, facts, mode)
	if err == nil && !mode.Stored && decision.Class == nil && decision.Drawn() && !decision.Unneeded() {
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
	if view.Fault != nil {
		return decision, nil, view.Fault
	}
	if !decision.Drawn() {
		return decision, nil, nil
	}
	decision.Claim.Usage = 1
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
	r := resolver{out, view, &resolved, mode, f}
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
	view := decision.View
	kind, claim, isGated := view.Kind, subject{decision.Claim.Claim, facts, view}, d.isGated(view.Kind)
	remembers := isGated || decision.answers != nil || !mode.DryRun && (kind.memory != nil || kind.Limited)
	for {
		began, fresh := d.now(), uint64(0)
		if d.Fresh != nil {
			fresh = d.Fresh()
		}
		order := order{
			view: view, claim: claim, seed: kind.Seed(claim.Claim, fresh), granted: d.granted(kind, claim.Claim),
			out: out, hides: kind.Use != "" && (isGated || mode == Mode{Stored: true, DryRun: true}), keeps: isGated, remembers: remembers,
		}
		best := order.first(ctx, decision)
		if err := decision.settle(claim, best.class != nil); err != nil || !decision.Drawn() {
			return err
		}
		decision.Took += d.now().Sub(began)
		for unlikely := 0; best.class != nil && isGated; {
			gate, asked := decision.answers[best.class]
			if !asked && !best.admitted {
				var err error
				if gate, err = d.ask(ctx, out, view, claim.Claim, best.class); err != nil {
					return err
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
				return errors.New("too many of the classes that match are not allowed to check the others: narrow the selector")
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
				return err
			}
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

// commit remembers that a claim gets a candidate. It is false if the draw would end in another way now: by its memory, or for lack of room.
func (d *Decider) commit(k *ClaimKind, c claim.Claim, best candidate) bool {
	if best.class.Capacity != nil {
		best.class.Kind.Reserving.Lock() // So no two claims of this replica take the same room.
		defer best.class.Kind.Reserving.Unlock()
		if !k.hasRoom(c, best.class) {
			return false
		}
	}
	if k.memory != nil && !k.memory.commit(best.class, best.rank) {
		return false
	}
	if k.Counted && k.Tally != nil {
		k.Tally.reserve(c, k.Demand.CountedAs(best.class), k.ShareOf(c.Namespace, c.Usage), d.now())
	}
	return true
}

// settle is the end of a draw, with or without a class. It refuses a claim that made classes costly only if no other class fits: else one
// class could refuse every claim with longer fields. It is an error if it is nobody's fault that classes were not judged.
func (d *Decision) settle(claim subject, found bool) error {
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

// ask the gates about a class, within the deadline of the decision.
func (d *Decider) ask(ctx context.Context, out *outside, view *View, claim claim.Claim, c *inventory.Class) (*Gate, error) {
	ctx, cancel := out.ask(ctx)
	defer cancel()
	return d.refusing(ctx, view, claim, c)
}

// refusing returns the first gate that refuses a class, nil if none does.
func (d *Decider) refusing(ctx context.Context, view *View, claim claim.Claim, c *inventory.Class) (*Gate, error) {
	for i := range d.Gates {
		gate := &d.Gates[i]
		if !gate.isOf(view.Kind) {
			continue
		}
		admits, err := false, ctx.Err()
		if err == nil {
			admits, err = gate.Admits(ctx, view, claim, c)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot tell which classes are %s: %w", gate.Text, err)
		}
		if !admits {
			return gate, nil
		}
	}
	return nil, nil
}

func (g *Gate) isOf(k *ClaimKind) bool { return g.Of == nil || g.Of(k) }

func (d *Decider) isGated(k *ClaimKind) bool {
	return slices.ContainsFunc(d.Gates, func(g Gate) bool { return g.isOf(k) })
}

// granted is what roles allow a claim to use, nil if that may be anything.
func (d *Decider) granted(k *ClaimKind, c claim.Claim) *access.Granted {
	if k.Use == "" || d.Grants == nil {
		return nil
	}
	return d.Grants().Of(k.UserOf(c))
}

// addUsable adds the first classes by name that the claim is offered and may use: none if nobody answers, or a review knows no roles,
// because the first that it may use would tell of those before them.
func (d *Decider) addUsable(ctx context.Context, out *outside, decision *Decision) {
	view, in := decision.View, decision.Claim.Claim
	granted := d.granted(view.Kind, in)
	if granted == nil && decision.answers == nil {
		return
	}
	var offered []*inventory.Class
	view.eachOffered(in.Namespace, func(c *inventory.Class) {
		i, _ := view.Kind.firstFreeDrop(subject{Claim: in, view: view}, c)
		if i < 0 && view.likely(granted, in.Namespace, c) {
			offered = append(offered, c)
		}
	})
	slices.SortFunc(offered, inventory.Compare)
	usable := []*inventory.Class{}
	for _, c := range offered[:min(len(offered), v1beta1.MaxAllowedShown)] {
		gate, asked := decision.answers[c]
		if !asked {
			var err error
			if gate, err = d.ask(ctx, out, view, in, c); err != nil {
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
		ctx, cancel := o.ask(ctx)
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

// ask returns the context for a question. The place is given back while it is asked: that may take long.
func (o *outside) ask(ctx context.Context) (context.Context, context.CancelFunc) {
	o.leave()
	if o.decider.Deadline == nil {
		return ctx, func() {}
	}
	if o.deadline.IsZero() {
		o.deadline = o.decider.Deadline(ctx)
	}
	return context.WithDeadline(ctx, o.deadline)
}

// Refusal is a candidate that a gate refused.
type Refusal struct {
	Class *inventory.Class
	Gate  *Gate
}

// Decision is the class of a claim, and why.
type Decision struct {
	View *View
	// Claim, if it is left alone or has problems, was not decided on.
	Claim claim.Intake
	// partition of the claim, if it gets a default class, and the values of its equality terms.
	partition string
	values    inventory.Values
	// Class is nil if the claim is unmatched.
	Class *inventory.Class
	// Lacks is the field that the schema requires of a claim, and that this one lacks without a class. It is empty if there is none.
	Lacks string
	// Candidates is how many classes the filters left.
	Candidates int
	// Dropped counts the classes that the claim asked for and each filter dropped, nil if none did, and
	// DropErr is the error of a filter, for the first class by name. So replicas say the same.
	Dropped []int
	DropErr error
	dropErr *inventory.Class
	// cordoned is the first of these by name that is cordoned.
	cordoned *inventory.Class
	// Unjudged and Skipped count the classes for which no expression was evaluated, because those for other classes cost too much. The
	// strategy may prefer one that is unjudged to Class, and none that was skipped.
	Unjudged, Skipped int
	// Usable are some of the classes that a claim that gets none may use, where it may not use all. It is nil where that is not known.
	Usable []*inventory.Class
	// Refused are the candidates before Class in the order of the draw.
	Refused []Refusal
	// answers are, if the decision is explained, the gate that refuses a candidate, nil where none does, of all candidates.
	answers map[*inventory.Class]*Gate
	// Took is how long the draws took without the gates.
	Took time.Duration
	// Waited is what came of waiting for a newer view.
	Waited WaitOutcome
}

// forgetDraw makes room for the outcome of another draw.
func (d *Decision) forgetDraw() {
	d.Candidates, d.Dropped, d.DropErr, d.dropErr, d.cordoned, d.Refused = 0, nil, nil, nil, nil, nil
	d.Unjudged, d.Skipped, d.Lacks = 0, 0, ""
}

// Drawn reports whether there was a draw, with or without a candidate.
func (d *Decision) Drawn() bool {
	return d.View != nil && d.View.Fault == nil && d.Claim.LeftAlone == "" && len(d.Claim.Problems) == 0
}

// Denied says that the claim is not to be created without a class: its kind says so, or the API server would refuse it with less to say.
func (d *Decision) Denied() bool {
	return d.Drawn() && d.Class == nil && !d.Unneeded() && (d.View.Kind.Deny || d.Lacks != "")
}

// Unneeded reports whether a claim gets no class, does without one, and asked for none: there is nothing to tell.
func (d *Decision) Unneeded() bool {
	return d.Drawn() && d.Class == nil && d.Lacks == "" && d.Claim.Selector == nil && d.Claim.Given == nil &&
		(d.View.Kind.Use != "" || // A default that it may not use is none, and one that it cannot get is to be told.
			d.Candidates == 0 && len(d.Refused) == 0 && !d.misses()) &&
		d.View.Kind.Reader.WhenNoSelector == v1beta1.NoSelectorDefaultIfAny
}

// misses reports whether a class was dropped for another reason than that it does not fit the claim: it might be mended.
func (d *Decision) misses() bool {
	for i, n := range d.Dropped {
		if n > 0 && (i < d.View.Kind.free+2 || d.View.Kind.filters[i].reason == reasonNoScore) {
			return true
		}
	}
	return false
}

// Warning tells the claim's author, or the cluster's admins, what to fix. It is empty if nothing is wrong.
func (d *Decision) Warning() string {
	warning := ""
	switch {
	case len(d.Claim.Problems) > 0: // Of a claim that waits.
		warning = truncate.String(d.Claim.Problems[0].Error(), v1beta1.MaxMessageBytes)
	case d.Unneeded():
	case d.Class == nil:
		warning = d.unmatched()
	case d.asks() == nil && d.Candidates > 1 && d.View.Kind.Use == "": // It must not learn of those that it may not use.
		warning = fmt.Sprintf("%d classes are marked default for %q, of which %q was drawn: leave the mark on one of them",
			d.Candidates, d.View.Kind.Name, d.Class)
	}
	if len(d.View.Unread) == 0 {
		return warning
	}
	if warning != "" {
		warning += "; "
	}
	return warning + d.View.UnreadText()
}

// Patch gives the claim its class, after these tests, and the annotation that says why.
func (d *Decision) Patch(tests ...fields.Operation) []byte {
	annotation := ""
	if d.View.Kind.Reader.Annotates {
		annotation = d.Record().String()
	}
	return d.View.Kind.Reader.Reference.Patch(&d.Claim, d.Class.Target(), annotation, tests)
}

// Record is what the annotation of a bound claim says of the decision.
type Record struct {
	Reason     string           `json:"reason"`
	Class      string           `json:"class"`
	Strategy   v1beta1.Strategy `json:"strategy"`
	Candidates int              `json:"candidates,omitempty"` // None where the claim may not use all: it must not learn how many.
}

// Record of a decision for a class.
func (d *Decision) Record() Record {
	r := Record{d.Reason(), d.Class.String(), d.View.Kind.Strategy.Name, d.Candidates}
	if d.View.Kind.Use != "" {
		r.Candidates = 0
	}
	return r
}

func (r Record) String() string {
	text, _ := json.Marshal(r) // It has strings and a number.
	return string(text)
}

// Given says that the claim refers to its class already, as it may where claims.when is true for such a claim: nothing is to be written.
func (d *Decision) Given() bool {
	k, in := d.View.Kind, &d.Claim
	if d.Class == nil || !k.Reader.Reference.Decides {
		return false
	}
	to, has := k.Reader.Reference.RefersTo(in.Object)
	if !has {
		return false
	}
	counts := k.Reader.Reference.CountsFor(in.Namespace, to)
	return counts[0] == k.Demand.CountedAs(d.Class) || counts[1] != 0 && counts[1] == k.Demand.CountedAs(d.Class)
}

// lacksCompany is what the schema requires beside the reference, and only the author can give; nil if the claim has it.
func (d *Decision) lacksCompany() *field.Error {
	return d.View.Kind.Reader.Reference.LacksCompany(d.Claim.Parents)
}

// asks is what the claim asks for: nil is the default class.
func (d *Decision) asks() labels.Selector { return d.View.Kind.Reader.Asks(d.Claim.Claim) }

// Reason of the decision in a word, for programs.
func (d *Decision) Reason() string {
	switch {
	case d.Claim.LeftAlone != "":
		return d.Claim.LeftAlone
	case len(d.Claim.Problems) > 0:
		return "MalformedClaim"
	case d.Class == nil && d.asks() == nil:
		return "NoDefaultClass"
	case d.Class == nil:
		return "NoMatchingClass"
	case d.asks() == nil:
		return "DefaultClass"
	case d.Claim.Selector == nil:
		return "AnyClass"
	}
	return "MatchingClass"
}

// DroppedText is how many classes each filter dropped and each gate refused, such as "Cordoned=2,WeightZero=1", for programs.
func (d *Decision) DroppedText() string {
	return d.dropped(func(reason, _ string, n int) string { return fmt.Sprintf("%s=%d", reason, n) }, ",")
}

// IsFull reports whether a claim gets no class, and at least one had no room for it.
func IsFull(d *Decision) bool { return d.Drawn() && d.Class == nil && droppedBy(d, reasonFull) }

// droppedBy reports whether the filter with this reason dropped a class.
func droppedBy(d *Decision, reason string) bool {
	i := slices.IndexFunc(d.View.Kind.filters, func(f filter) bool { return f.reason == reason })
	return d.Dropped != nil && i >= 0 && d.Dropped[i] > 0
}

func (d *Decision) dropped(format func(reason, text string, n int) string, separator string) string {
	var texts []string
	for i, n := range d.Dropped {
		if n > 0 {
			f := &d.View.Kind.filters[i]
			texts = append(texts, format(f.reason, f.text, n))
		}
	}
	byGate := map[*Gate]int{}
	for _, r := range d.Refused {
		byGate[r.Gate]++
	}
	for _, r := range d.Refused { // In the order of their first refusals.
		if n := byGate[r.Gate]; n > 0 {
			texts = append(texts, format(r.Gate.Reason, r.Gate.Text, n))
			delete(byGate, r.Gate)
		}
	}
	if more := len(texts) - maxDrops; more > 0 {
		texts = append(texts[:maxDrops], fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, separator)
}

// maxDrops limits the reasons in a text. Each of the class kinds of a claim kind may have fits, by names of its own.
const maxDrops = 32
