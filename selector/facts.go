package selector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// Subject of a test: a claim and its view, and what expressions say of it, nil for a kind without.
type Subject struct {
	claim.Claim
	View  *View
	facts *facts
	// every reports whether all classes that the claim is offered are looked at, with room or not, to see whether only one is left. only is
	// that one: it is all that the claim asks for.
	every bool
	only  *inventory.Class
}

// asks is what the claim asks for: nil is the default class, or the only one.
func (s *Subject) asks() labels.Selector {
	if s.every {
		return labels.Everything()
	}
	return s.View.Kind.Reader.Asks(s.Claim)
}

// facts are what the expressions of a ClaimKind see of one claim, and what they say of it. One goroutine uses them, for one decision.
type facts struct {
	// names of the related objects, by the name of the relation, with their namespace. Those that are absent have a name and no object.
	names map[string]string
	// partition of the claim, if it gets a default class.
	partition string

	input  expression.Input
	budget expression.Budget
	// forClasses is the part of the budget that each draw may spend.
	forClasses uint64
	values     inventory.Values
	// terms are, by their fit, those that do not look at the class, and are not true.
	terms map[*rules.Fit]claimTerm
	// spare is what may be spent on classes that the claim may not be allowed to use.
	spare expression.Budget
	// err ends the decision: it got no turn.
	err error
	// costly is why the claim is at fault for what it costs to judge a class, nil if it is not.
	costly *field.Error
	// last is the judgement of a class, and judged are those that are remembered, because the same may be asked for again.
	last      judgement
	of        *inventory.Class
	remembers bool
	judged    map[*inventory.Class]judgement
}

// claimTerm is a term of a fit that does not look at the class, and is not true.
type claimTerm struct {
	term *expression.Expression
	err  error
}

func (f *facts) bool(e *expression.Expression) (bool, error) { return e.Bool(&f.input, &f.budget) }

// see a class, and the objects that it names. The error is that it costs too much.
func (f *facts) see(v *View, c *inventory.Class) (err error) {
	f.input.Class = c.Fields
	f.input.ClassRelated, err = v.relatedOf(c, &f.budget)
	return err
}

// rank the class that is seen by its score.
func (f *facts) rank(k *ClaimKind) (err error) {
	f.last.term = k.Rules.Score
	f.last.score, err = k.Rules.Score.Number(&f.input, &f.budget)
	f.last.rank = rankOf(f.last.score)
	if k.Strategy.Name == v1beta1.LowestScore {
		f.last.rank = -f.last.rank
	}
	return err
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

// resolver evaluates what does not look at a class.
type resolver struct {
	out   *outside
	view  *View
	in    *claim.Intake
	mode  Mode
	facts *facts
	// counts reports whether only the usage is resolved. tooLong are then the lists that are too long, and what depends on one of them.
	counts  bool
	tooLong []string
}

func (r *resolver) resolve(ctx context.Context) error {
	k, f, in := r.view.Kind, r.facts, r.in
	if err := r.resolveRelated(ctx); err != nil || len(in.Problems) > 0 {
		return err
	}
	if k.Reader.AsksOthers() && (!in.Named || !k.Reader.Reference.Decides) {
		ok, err := f.bool(k.Rules.BindWhen)
		if r.fails("spec.claims.when", k.Rules.BindWhen, err) {
			return nil
		}
		if !ok {
			in.LeftAlone = claim.NotYet
			return nil
		}
	}
	if in.Selector == nil && k.Rules.SelectorFrom != nil {
		if r.resolveSelector(); len(in.Problems) > 0 {
			return nil
		}
	}
	if in.Selector == nil && k.Reader.WhenNoSelector == v1beta1.NoSelectorLeaveAlone {
		in.LeftAlone = claim.NoSelector
		return nil
	}
	if k.Rules.PartitionOf != nil && k.Reader.Asks(in.Claim) == nil {
		var err error
		f.partition, err = k.Rules.PartitionOf.Text(&f.input, &f.budget)
		if r.fails("spec.classes.partition.claim", k.Rules.PartitionOf, err) {
			return nil
		}
	}
	var err error
	if k.Rules.Seed != nil && !in.Named {
		in.Group, err = k.Rules.Seed.Text(&f.input, &f.budget)
		if len(in.Group) > v1beta1.MaxExpressionValueBytes {
			err = fmt.Errorf("it is longer than %d bytes", v1beta1.MaxExpressionValueBytes)
		}
		if r.fails(rules.SeedField, k.Rules.Seed, err) {
			return nil
		}
	}
	if !r.resolveUsage() {
		return nil
	}
	for _, fit := range k.Rules.Fits {
		r.resolveFit(fit, true)
	}
	for _, s := range r.view.All {
		for _, fit := range s.Kind.ForClaims.Fits {
			r.resolveFit(fit, false)
		}
	}
	return nil
}

// resolveUsage is false if it makes the claim invalid.
func (r *resolver) resolveUsage() bool {
	var err error
	for i := range r.view.Kind.Rules.Usage {
		u := &r.view.Kind.Rules.Usage[i]
		if r.isUnknown(u.Expression) {
			r.in.Usage[i] = claim.Unknown
			continue
		}
		r.in.Usage[i], err = claim.UsageOf(u.Expression, &r.facts.input, &r.facts.budget)
		if !r.mode.Stored && r.fails(u.Field, u.Expression, err) {
			return false
		}
	}
	return true
}

// fails makes the claim invalid if an expression failed, and reports whether it did.
func (r *resolver) fails(name string, e *expression.Expression, err error) bool {
	if err == nil {
		return false
	}
	r.in.Problems = append(r.in.Problems, claim.Failure(r.view.Kind.Name, name, e, err))
	return true
}

func (r *resolver) resolveSelector() {
	k, f, in := r.view.Kind, r.facts, r.in
	at := field.NewPath("spec", "selector", "expression")
	value, err := k.Rules.SelectorFrom.Value(&f.input, &f.budget)
	if r.fails(at.String(), k.Rules.SelectorFrom, err) {
		return
	}
	switch v := value.(type) {
	case string:
		if v != "" {
			in.Selector, in.Problems = claim.ParseSelectorText(v, at)
		}
	case map[string]any:
		if len(v) > 0 {
			in.Selector, in.Problems = claim.ParseSelector(map[string]any{"matchLabels": v}, at)
		}
	default:
		r.fails(at.String(), k.Rules.SelectorFrom, errors.New("it is neither a text nor a map of labels"))
	}
}

// resolveFit evaluates the claim's part of a fit. own reports whether it is the claim kind's: then an error makes the claim invalid, and
// otherwise it drops the classes of the kind, unless the claim is too long for it.
func (r *resolver) resolveFit(of *rules.Fit, own bool) {
	f := r.facts
	for _, term := range of.OfClaim {
		ok, err := f.bool(term)
		if (own || errors.Is(err, expression.ErrBudget)) && r.fails(of.Field, term, err) {
			return
		}
		if !ok || err != nil {
			if f.terms == nil {
				f.terms = map[*rules.Fit]claimTerm{}
			}
			f.terms[of] = claimTerm{term, err}
			break
		}
	}
	for _, e := range of.Equal {
		value, err := e.Value.Value(&f.input, &f.budget)
		if errors.Is(err, expression.ErrBudget) && r.fails(of.Field, e.Value, err) {
			return
		}
		f.values = append(f.values, inventory.NewValue(e, value, err))
	}
}

// resolveRelated finds the Namespace of the claim and the objects that it names.
func (r *resolver) resolveRelated(ctx context.Context) error {
	k, f, in := r.view.Kind, r.facts, r.in
	if k.Rules.Namespaces != nil && in.Namespace != "" {
		o, err := r.object(ctx, k.Rules.Namespaces, "", in.Namespace)
		if err != nil {
			return err
		}
		if o != nil {
			f.input.Namespace = o
		}
	}
	if len(k.Rules.Related) == 0 {
		return nil
	}
	f.input.Related, f.names = make(map[string]any, len(k.Rules.Related)), make(map[string]string, len(k.Rules.Related))
	for i := range k.Rules.Related {
		if err := r.resolveRelation(ctx, &k.Rules.Related[i]); err != nil || len(in.Problems) > 0 {
			return err
		}
	}
	return nil
}

// isUnknown reports whether an expression looks at a list that is too long, or at what depends on it.
func (r *resolver) isUnknown(e *expression.Expression) bool {
	return e != nil && slices.ContainsFunc(r.tooLong, func(name string) bool {
		return len(rules.OfObject(e.Looks(expression.Related), name)) > 0
	})
}

func (r *resolver) resolveRelation(ctx context.Context, rule *rules.Relation) error {
	if r.isUnknown(rule.ObjectName) || r.isUnknown(rule.ObjectNamespace) {
		r.tooLong = append(r.tooLong, rule.Kind.Name)
		return nil
	}
	namespace, name := "", ""
	if !rule.IsList() {
		if name = r.text(rule.NameField, rule.ObjectName); name == "" {
			return nil
		}
	}
	switch objects := r.view.Related(rule.Kind.Key()); {
	case objects != nil && !objects.Namespaced:
	case rule.ObjectNamespace != nil:
		namespace = r.text(rule.NamespaceField, rule.ObjectNamespace)
	default:
		namespace = r.in.Namespace
	}
	if len(r.in.Problems) > 0 {
		return nil
	}
	if rule.IsList() {
		return r.listRelated(ctx, rule, namespace)
	}
	r.facts.names[rule.Kind.Name] = objectName(namespace, name)
	o, err := r.object(ctx, rule.Kind, namespace, name)
	if o != nil {
		r.facts.input.Related[rule.Kind.Name] = o
	}
	return err
}

// listRelated objects of a namespace, as they are known. What is not known yet is too new for a claim to rely on.
func (r *resolver) listRelated(ctx context.Context, rule *rules.Relation, namespace string) (err error) {
	of := rule.Kind
	objects := r.view.Related(of.Key())
	if read := r.out.decider.RelatedList; read != nil {
		ctx, cancel := r.out.context(ctx)
		defer cancel()
		if objects, err = read(ctx, of, namespace); err != nil {
			return fmt.Errorf("cannot list %s, at which expressions look: %w", of.Resource, err)
		}
	}
	r.facts.names[of.Name] = objectName(namespace, "*")
	switch all, n := objects.Selected(of, namespace); {
	case !r.counts && objects != nil && objects.Namespaced && namespace == "" && rule.ObjectNamespace == nil:
		return inventory.Faultf(v1beta1.ReasonNamespaceUnknown, "claim kind %q: %s", r.view.Kind.Name, rule.NeedsNamespace())
	case all != nil:
		r.facts.input.Related[of.Name] = all
	case r.counts:
		r.tooLong = append(r.tooLong, of.Name)
	case namespace == "" || namespace != r.in.Namespace: // The author of the claim can do nothing about it.
		return &inventory.Fault{Reason: v1beta1.ReasonTooLarge, Text: claim.TooManyRelated(r.view.Kind.Name, of, namespace, n)}
	default:
		text := claim.TooManyRelated(r.view.Kind.Name, of, namespace, n)
		r.in.Problems = append(r.in.Problems, field.Invalid(field.NewPath("metadata"), field.OmitValueType{}, text))
	}
	return nil
}

// objectName is NAME, or NAMESPACE/NAME.
func objectName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// text evaluates the name or namespace of a related object: empty if an object that it looks at is absent.
func (r *resolver) text(name string, e *expression.Expression) string {
	text, err := e.Text(&r.facts.input, &r.facts.budget)
	if !errors.Is(err, expression.ErrAbsent) {
		r.fails(name, e, err)
	}
	return text
}

// object of a related kind, read live if it is not known; nil if there is none.
func (r *resolver) object(ctx context.Context, kind *rules.Kind, namespace, name string) (_ *expression.Object, err error) {
	o, isExpired := r.view.Related(kind.Key()).Valid(kind, namespace, name)
	if o != nil || isExpired {
		return o, nil
	}
	if r.out.decider.Related == nil || r.mode.Stored && !r.out.decider.Patient {
		return nil, nil
	}
	ctx, cancel := r.out.context(ctx)
	defer cancel()
	o, err = r.out.decider.Related(ctx, r.in.Namespace, kind, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s %q, which the claim names: %w", kind.Resource, name, err)
	}
	return o, nil
}
