package selector

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// Explanation is a decision with its reasons. explain prints it as JSON.
type Explanation struct {
	Decision Decision `json:"-"`
	facts    *facts   // while it is made, nil for a claim without expressions
	// Reproducible reports whether the same claim gets the same class every time. Otherwise, the class is the result of one draw.
	Reproducible bool `json:"reproducible"`
	// UsableBy is whose right to use the candidates was asked about, such as: namespace "team". It is empty where every claim may have all.
	UsableBy string `json:"usableBy,omitempty"`

	// BindWhen is what the expression of the ClaimKind says of the claim, as are SelectorFrom of a claim without
	// a selector, and Partition of one that asks for the default class: also of a claim that is left alone, or has
	// problems, because of that. They are nil where the ClaimKind has no such expression, or the claim does not need it.
	BindWhen     *Evaluation `json:"when,omitempty"`
	SelectorFrom *Evaluation `json:"selectorFrom,omitempty"`
	Partition    *Evaluation `json:"partition,omitempty"`
	// Seed is the group with which the claim draws, where an expression says so.
	Seed *Evaluation `json:"seed,omitempty"`
	// Usage is how much of the capacity of its class the claim uses, by quantity, where expressions say so.
	Usage []UsageEvaluation `json:"usage,omitempty"`
	// Related are the objects that expressions see as related.NAME, in the order of the ClaimKind.
	Related []RelatedObject `json:"related,omitempty"`

	// Candidates are the classes to draw from, the likeliest first.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Dropped classes match, but this claim may not get them.
	Dropped []Drop `json:"dropped,omitempty"`
	// NearMisses are the classes that only one requirement of the selector keeps out: first those that nothing else does, each by class.
	NearMisses []NearMiss `json:"nearMisses,omitempty"`
	// FarMisses counts the classes that more than one requirement keeps out.
	FarMisses int `json:"farMisses,omitempty"`
	// NotDefault counts the classes without the default mark, for a claim that gets the default class.
	NotDefault int `json:"notDefault,omitempty"`
}

// ClassName names a class.
type ClassName struct {
	// ClassKind that registers it, <plural>.<group>.
	ClassKind string `json:"classKind,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// String is for people.
func (n ClassName) String() string {
	if n.Namespace != "" {
		return n.Kind + "/" + n.Namespace + "/" + n.Name
	}
	return n.Kind + "/" + n.Name
}

// NameOf a class.
func NameOf(c *inventory.Class) ClassName {
	return ClassName{ClassKind: c.Kind.Name, Kind: c.Kind.GroupVersionKind.Kind, Namespace: c.Namespace, Name: c.Name}
}

// Candidate is a class that may be drawn.
type Candidate struct {
	ClassName `json:",inline"`
	Class     *inventory.Class `json:"-"`
	// Chosen reports whether the claim gets this class; explain sets it.
	Chosen bool `json:"chosen,omitempty"`
	// Weight from 0 to 1000000, even if the strategy ignores it.
	Weight int64 `json:"weight"`
	// WeightError is why the weight of the class is malformed. Weight is what it counts as.
	WeightError string `json:"weightError,omitempty"`
	// Score by the ClaimKind's expression, a number; nil where it has none.
	Score any `json:"score,omitempty"`
	rank  int64
	// Odds are zero if they depend on more than is known here.
	Odds Odds `json:"odds,omitzero"`
}

// Odds of a candidate are exactly Share in Total: no view has so many classes that the sum of their weights exceeds an int64.
type Odds struct {
	Share int64 `json:"share"`
	Total int64 `json:"total"`
}

// MarshalJSON adds the probability, which is the same as a number.
func (o Odds) MarshalJSON() ([]byte, error) {
	type odds Odds
	return json.Marshal(struct {
		Probability float64 `json:"probability"`
		odds
	}{float64(o.Share) / float64(o.Total), odds(o)})
}

// Drop is why a claim may not get a class.
type Drop struct {
	// ClassName is empty in a NearMiss, which has it.
	ClassName `json:",inline"`
	Class     *inventory.Class `json:"-"`
	// Reason in one word.
	Reason string `json:"reason"`
	// Text reads after "is".
	Text string `json:"message"`
	// Expression that is not true of the class, a term of the registration, and what it saw; empty where none dropped the class.
	Expression string           `json:"expression,omitempty"`
	Saw        []expression.Saw `json:"saw,omitempty"`
}

// NearMiss is a class that meets all requirements of a selector but one.
type NearMiss struct {
	ClassName `json:",inline"`
	Class     *inventory.Class `json:"-"`
	Unmet     Requirement      `json:"unmet"`
	// Value of the class's label; nil if it has no such label.
	Value *string `json:"value,omitempty"`
	// Drop is why the claim could not get the class even so; nil if it could. Gates are asked about the first MaxRefusals of all.
	Drop *Drop `json:"dropped,omitempty"`
}

// Requirement is one requirement of a selector.
type Requirement struct {
	Key string `json:"key"`
	// Operator in the form of package labels: in, notin, exists, !, =, ==, !=, gt, lt.
	Operator selection.Operator `json:"operator"`
	Values   []string           `json:"values,omitempty"`
	// Text is the whole requirement, in kubectl's syntax.
	Text string `json:"text"`
}

// Evaluation of an expression of a claim kind for a claim.
type Evaluation struct {
	Expression string `json:"expression"`
	// Value is the result as JSON is decoded.
	Value any `json:"value,omitempty"`
	// Error is why there is no value.
	Error string           `json:"error,omitempty"`
	Saw   []expression.Saw `json:"saw,omitempty"`
}

func evaluation(of *expression.Expression, seen *expression.Input) *Evaluation {
	value, err := of.Value(seen, &expression.Budget{Left: v1beta1.MaxExpressionCost})
	e := &Evaluation{Expression: of.String(), Value: value, Saw: of.Saw(seen)}
	if err != nil {
		e.Error = truncate.String(expression.Detail(err), v1beta1.MaxMessageBytes)
	}
	return e
}

// UsageEvaluation is how much the claim uses of a quantity.
type UsageEvaluation struct {
	Name v1beta1.QuantityName `json:"name"`
	Evaluation
}

// RelatedObject is one that a claim names.
type RelatedObject struct {
	// Name in expressions, after "related.".
	Name string `json:"name"`
	// Resource is <plural>.<group>.
	Resource string `json:"resource"`
	// Object that the claim names, NAME or NAMESPACE/NAME; empty if it names none. The name of a list is *.
	Object string `json:"object,omitempty"`
	Found  bool   `json:"found"`
	// Selected is the length of a list, nil for an object.
	Selected *int `json:"selected,omitempty"`
}

func newRelatedObject(kind *rules.Kind, name string, value any) RelatedObject {
	o := RelatedObject{Name: kind.Name, Resource: kind.Resource, Object: name, Found: value != nil}
	if list, isList := value.([]any); isList {
		o.Selected = new(len(list))
	}
	return o
}

// saw is what an expression looks at, with the objects that the class names among it.
func (e *Explanation) saw(of *expression.Expression, c *inventory.Class) (all []expression.Saw) {
	_, _ = c.Related(e.Decision.View.Related, &e.facts.budget, func(r *rules.Relation, namespace, name string) {
		if len(rules.OfObject(of.Looks(expression.ClassRelated), r.Kind.Name)) > 0 {
			value := r.Kind.Resource + " " + objectName(namespace, name)
			if _, isExpired := e.Decision.View.Related(r.Kind.Key()).Valid(r.Kind, namespace, name); isExpired {
				value += ", which is expired"
			}
			all = append(all, expression.Saw{
				Field: fields.Path{r.Kind.Name}.In(expression.ClassRelated), Value: truncate.String(value, v1beta1.MaxShownBytes),
			})
		}
	})
	return append(all, of.Saw(&e.facts.input)...)
}
