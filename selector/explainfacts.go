package selector

import (
	"fmt"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/truncate"
)

// Evaluation of an expression of a claim kind for a claim.
type Evaluation struct {
	Expression string `json:"expression"`
	// Value is the result as JSON is decoded.
	Value any `json:"value,omitempty"`
	// Error is why there is no value.
	Error string           `json:"error,omitempty"`
	Saw   []expression.Saw `json:"saw,omitempty"`
}

// RelatedObject is one that a claim names.
type RelatedObject struct {
	// Name in expressions, after "related.".
	Name string `json:"name"`
	// Resource is <plural>.<group>.
	Resource string `json:"resource"`
	// Object that the claim names, NAME or NAMESPACE/NAME; empty if it names none.
	Object string `json:"object,omitempty"`
	Found  bool   `json:"found"`
}

// addFacts adds what expressions say of the claim, in the order of their evaluation, up to the
// first that fails. Those that look at nothing but the claim were evaluated when it was read.
func (e *Explanation) addFacts(read Intake) {
	claim, kind, facts := e.Decision.Claim, e.Decision.View.Kind, e.Decision.facts
	if claim.Object == nil {
		return
	}
	in, rules, resolved := &expression.Input{Claim: claim.Object}, kind.rules, facts != nil
	if resolved {
		in = &facts.input
		for i := range rules.related {
			r := &rules.related[i]
			_, found := in.Related[r.kind.Name]
			e.Related = append(e.Related, RelatedObject{r.kind.Name, r.kind.Resource, facts.names[r.kind.Name], found})
		}
	}
	for _, x := range []struct {
		of        *expression.Expression
		to        **Evaluation
		evaluated bool
	}{
		{rules.bindWhen, &e.BindWhen, resolved || !kind.AsksOthers()},
		{rules.selectorFrom, &e.SelectorFrom, resolved && claim.LeftAlone != NotYet && read.Selector == nil},
		{rules.partitionOf, &e.Partition, resolved && claim.LeftAlone == "" && kind.Asks(claim.Claim) == nil},
	} {
		if x.of == nil || !x.evaluated {
			continue
		}
		*x.to = evaluationOf(x.of, in)
		if (*x.to).Error != "" {
			return
		}
	}
}

func evaluationOf(e *expression.Expression, in *expression.Input) *Evaluation {
	value, err := e.Value(in, &expression.Budget{Left: v1alpha1.MaxExpressionCost})
	evaluation := &Evaluation{Expression: e.String(), Value: value, Saw: e.Saw(in)}
	if err != nil {
		evaluation.Error = truncate.String(expression.Detail(err), v1alpha1.MaxMessageBytes)
	}
	return evaluation
}

// otherSeat says why a default class is none for the claim.
func (e *Explanation) otherSeat(c *Class) Drop {
	drop := Drop{Class: c, Reason: "NotOfNamespace", Text: "the default of namespaces that have none of their own"}
	const notOfPartition = "NotOfPartition"
	kind, facts := e.Decision.View.Kind, e.Decision.facts
	if kind.partitionClass == nil {
		return drop
	}
	of, err := kind.partitionFor(c)
	switch {
	case err != nil:
		drop.Reason = notOfPartition
		drop.Text = "of an unknown partition: " + truncate.String(expression.Detail(err), v1alpha1.MaxMessageBytes)
	case of == facts.partition:
		return drop
	case of == "":
		drop.Reason, drop.Text = notOfPartition, "the default of partitions that have none of their own"
	default:
		drop.Reason, drop.Text = notOfPartition, fmt.Sprintf("the default of partition %q", truncate.String(of, v1alpha1.MaxShownBytes))
	}
	in := expression.Input{Class: c.Fields}
	drop.Expression, drop.Saw = kind.partitionClass.String(), kind.partitionClass.Saw(&in)
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
