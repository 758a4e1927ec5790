package selector

import (
	"fmt"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
	"github.com/classbind/classbind/selector/expression"
)

// Evaluation is what an expression of a claim kind says of a claim, and what it saw.
type Evaluation struct {
	Expression string
	// Value as JSON is decoded, or why there is none.
	Value any
	Err   error
	Saw   []expression.Saw
}

// RelatedObject is one that a claim names.
type RelatedObject struct {
	// Kind has its name in expressions.
	Kind *RelatedKind
	// Object is its name, with its namespace, empty if the claim names none.
	Object string
	Found  bool
}

// addFacts adds what expressions say of the claim, in the order of their evaluation, up to the
// first that fails. Those that look at nothing but the claim were evaluated when it was read.
func (e *Explanation) addFacts(read Intake) {
	claim, kind := e.Decision.Claim, e.Decision.View.Kind
	if claim.Facts == nil || claim.Facts.input.Claim == nil {
		return
	}
	in, rules, resolved := &claim.Facts.input, kind.rules, read.LeftAlone == "" && len(read.Problems) == 0
	if resolved {
		for i := range rules.related {
			r := &rules.related[i]
			_, found := in.Related[r.kind.Name]
			e.Related = append(e.Related, RelatedObject{r.kind, claim.Facts.Names[r.kind.Name], found})
		}
	}
	for _, x := range []struct {
		of        *expression.Expression
		to        **Evaluation
		evaluated bool
	}{
		{rules.bindWhen, &e.BindWhen, true},
		{rules.selectorFrom, &e.SelectorFrom, resolved && claim.LeftAlone != NotYet && read.Selector == nil},
		{rules.partitionOf, &e.Partition, resolved && claim.LeftAlone == "" && kind.Asks(claim.Claim) == nil},
	} {
		if x.of == nil || !x.evaluated {
			continue
		}
		*x.to = evaluationOf(x.of, in)
		if (*x.to).Err != nil {
			return
		}
	}
}

func evaluationOf(e *expression.Expression, in *expression.Input) *Evaluation {
	value, err := e.Value(in, &expression.Budget{Left: v1alpha1.MaxExpressionCost})
	return &Evaluation{e.String(), value, err, e.Saw(in)}
}

// otherSeat says why a default class is none for the claim.
func (e *Explanation) otherSeat(c *Class) Drop {
	drop := Drop{Class: c, Reason: "NotOfNamespace", Text: "the default of namespaces that have none of their own"}
	const notOfPartition = "NotOfPartition"
	kind, facts := e.Decision.View.Kind, e.Decision.Claim.Facts
	if kind.rules.partitionClass == nil {
		return drop
	}
	of, err := kind.partitionFor(c)
	switch {
	case err != nil:
		drop.Reason, drop.Text = notOfPartition, "of an unknown partition: "+brief.Text(expression.Detail(err), v1alpha1.MaxMessageBytes)
	case of == facts.Partition:
		return drop
	case of == "":
		drop.Reason, drop.Text = notOfPartition, "the default of partitions that have none of their own"
	default:
		drop.Reason, drop.Text = notOfPartition, fmt.Sprintf("the default of partition %q", brief.Text(of, v1alpha1.MaxShownBytes))
	}
	in := expression.Input{Class: c.Fields}
	drop.Expression, drop.Saw = kind.rules.partitionClass.String(), kind.rules.partitionClass.Saw(&in)
	return drop
}

// WithRelated returns the view with related objects, where no Inventory gives it these.
func (v *View) WithRelated(objects []*Objects) *View {
	other := *v
	other.needs, other.related = nil, objects
	for _, o := range objects {
		other.needs = append(other.needs, o.Kind)
	}
	return &other
}
