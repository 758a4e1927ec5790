package selector

import (
	"fmt"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
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
func (e *Explanation) addFacts(read claim.Intake) {
	in, kind, facts := &e.Decision.Claim, e.Decision.View.Kind, e.Decision.facts
	if in.Object == nil {
		return
	}
	seen, resolved := &expression.Input{Claim: in.Object}, facts != nil
	if resolved {
		seen = &facts.input
		for i := range kind.Related {
			r := &kind.Related[i]
			_, found := seen.Related[r.Kind.Name]
			e.Related = append(e.Related, RelatedObject{r.Kind.Name, r.Kind.Resource, facts.names[r.Kind.Name], found})
		}
	}
	for _, x := range []struct {
		of        *expression.Expression
		to        **Evaluation
		evaluated bool
	}{
		{kind.BindWhen, &e.BindWhen, resolved || !kind.AsksOthers()},
		{kind.SelectorFrom, &e.SelectorFrom, resolved && in.LeftAlone != claim.NotYet && read.Selector == nil},
		{kind.PartitionOf, &e.Partition, resolved && in.LeftAlone == "" && kind.Asks(in.Claim) == nil},
	} {
		if x.of == nil || !x.evaluated {
			continue
		}
		*x.to = evaluationOf(x.of, seen)
		if (*x.to).Error != "" {
			return
		}
	}
}

func evaluationOf(e *expression.Expression, in *expression.Input) *Evaluation {
	value, err := e.Value(in, &expression.Budget{Left: v1beta1.MaxExpressionCost})
	evaluation := &Evaluation{Expression: e.String(), Value: value, Saw: e.Saw(in)}
	if err != nil {
		evaluation.Error = truncate.String(expression.Detail(err), v1beta1.MaxMessageBytes)
	}
	return evaluation
}

// otherSeat says why a default class is none for the claim.
func (e *Explanation) otherSeat(c *inventory.Class) Drop {
	drop := Drop{Class: c, Reason: "NotOfNamespace", Text: "the default of namespaces that have none of their own"}
	const notOfPartition = "NotOfPartition"
	kind, facts := e.Decision.View.Kind, e.Decision.facts
	if kind.PartitionClass == nil {
		return drop
	}
	of, err := kind.PartitionFor(c)
	switch {
	case err != nil:
		drop.Reason = notOfPartition
		drop.Text = "of an unknown partition: " + truncate.String(expression.Detail(err), v1beta1.MaxMessageBytes)
	case of == facts.partition:
		return drop
	case of == "":
		drop.Reason, drop.Text = notOfPartition, "the default of partitions that have none of their own"
	default:
		drop.Reason, drop.Text = notOfPartition, fmt.Sprintf("the default of partition %q", truncate.String(of, v1beta1.MaxShownBytes))
	}
	in := expression.Input{Class: c.Fields}
	drop.Expression, drop.Saw = kind.PartitionClass.String(), kind.PartitionClass.Saw(&in)
	return drop
}
