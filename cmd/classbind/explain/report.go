package explain

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/brief"
	"github.com/classbind/classbind/selector/expression"
)

// Version is the version of reports. New fields keep it; any other change needs a new
// version.
const Version = "explain.classbind.io/v1alpha1"

// Report is what "classbind explain" prints with -o json or yaml.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Items are in the order of the claims.
	Items []Item `json:"items"`
}

// Outcome is what happens to a claim.
type Outcome string

// The outcomes.
const (
	// Bound claims get a class.
	Bound Outcome = "Bound"
	// Unmatched claims get no class, because none matches.
	Unmatched Outcome = "Unmatched"
	// LeftAlone claims are not for classbind to bind.
	LeftAlone Outcome = "LeftAlone"
	// Malformed claims are refused: by classbind, or by --strict, which says what the API server
	// would refuse, or not store as it is.
	Malformed Outcome = "Malformed"
	// Undecided claims have a faulty registration: their failurePolicy decides.
	Undecided Outcome = "Undecided"
)

// Item explains one claim, by one of its ClaimKinds.
type Item struct {
	Claim   Claim   `json:"claim"`
	Outcome Outcome `json:"outcome"`
	// Reason is the outcome's reason in one word.
	Reason string `json:"reason"`
	// Message is the reason for people.
	Message string `json:"message"`
	// Class of a Bound claim; absent if it depends on more than explain knows.
	Class *Class `json:"class,omitempty"`
	// Reference is the class reference as it would be written into the claim.
	Reference any `json:"reference,omitempty"`
	// Reproducible says that the same claim gets the same class every time.
	// Otherwise, Class is the result of one draw.
	Reproducible bool `json:"reproducible"`
	// Warning is what the author of the claim gets at admission besides the message.
	Warning string `json:"warning,omitempty"`

	// Selector of the claim, in kubectl's syntax; absent if it has none.
	Selector      *string                `json:"selector,omitempty"`
	Strategy      v1alpha1.Strategy      `json:"strategy,omitempty"`
	Seed          v1alpha1.Seed          `json:"seed,omitempty"`
	WhenUnmatched v1alpha1.WhenUnmatched `json:"whenUnmatched,omitempty"`
	// OddsDependOn names what the draw depends on and explain does not know. The
	// candidates have no odds then.
	OddsDependOn string `json:"oddsDependOn,omitempty"`

	// BindWhen is what the expression of the ClaimKind says of the claim, as are
	// SelectorFrom of a claim without a selector, and Partition of one that asks for the
	// default class. They are absent where the ClaimKind has no such expression.
	BindWhen     *Evaluation `json:"bindWhen,omitempty"`
	SelectorFrom *Evaluation `json:"selectorFrom,omitempty"`
	Partition    *Evaluation `json:"partition,omitempty"`
	// Related are the objects that expressions see as related.NAME, in the order of the ClaimKind.
	Related []Related `json:"related,omitempty"`

	// Candidates are the classes to draw from, the likeliest first.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Dropped classes match, but this claim may not get them.
	Dropped []Dropped `json:"dropped,omitempty"`
	// NearMisses are the classes that only one requirement of the selector keeps out,
	// the nearest first.
	NearMisses []NearMiss `json:"nearMisses,omitempty"`
	// FarMisses counts the classes that more than one requirement keeps out.
	FarMisses int `json:"farMisses,omitempty"`
	// NotDefault counts the classes without the default mark, for a claim without a
	// selector.
	NotDefault int `json:"notDefault,omitempty"`

	// Errors of a Malformed claim.
	Errors []FieldError `json:"errors,omitempty"`
	// InvalidExpressions of its ClaimKind, and of ClassKinds that name that.
	InvalidExpressions []InvalidExpression `json:"invalidExpressions,omitempty"`
	// Notes say why the server may decide otherwise.
	Notes []string `json:"notes,omitempty"`

	// several says that the claim has other ClaimKinds, too, each with its item.
	several bool
}

func newItem(d document) *Item {
	return &Item{Claim: Claim{
		APIVersion: d.GetAPIVersion(), Kind: d.GetKind(), Namespace: d.GetNamespace(), Name: d.GetName(), Source: d.where,
	}}
}

// Claim names the explained claim.
type Claim struct {
	// ClaimKind that registers it; empty if none does.
	ClaimKind  string `json:"claimKind,omitempty"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	// Name is empty if the API server generates it.
	Name string `json:"name,omitempty"`
	// Source is the file, and the place in it, or the cluster.
	Source string `json:"source"`
}

// Class names a class.
type Class struct {
	// ClassKind that registers it, <plural>.<group>.
	ClassKind string `json:"classKind"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Candidate is a class that may be drawn.
type Candidate struct {
	Class `json:",inline"`
	// Chosen says that the claim gets this class.
	Chosen bool `json:"chosen,omitempty"`
	// Weight from 0 to 1000000, even if the strategy ignores it.
	Weight int64 `json:"weight"`
	// WeightError says why the weight of the class is malformed. Weight is what it counts as.
	WeightError string `json:"weightError,omitempty"`
	// Score by the ClaimKind's expression, a number; absent where it has none.
	Score any `json:"score,omitempty"`
	// Odds are absent if they depend on more than explain knows.
	Odds *Odds `json:"odds,omitempty"`
}

// Odds are exactly Share/Total. Probability is the same as a number.
type Odds struct {
	Probability float64 `json:"probability"`
	Share       int64   `json:"share"`
	Total       int64   `json:"total"`
}

// Dropped is a matching class, and why the claim may not get it.
type Dropped struct {
	Class `json:",inline"`
	Drop  `json:",inline"`
}

// Drop is why a claim may not get a class.
type Drop struct {
	// Reason in one word.
	Reason string `json:"reason"`
	// Message reads after "is".
	Message string `json:"message"`
	// Expression that is not true of the class, a term of what the registration says, and
	// what it saw. They are absent where no expression dropped the class.
	Expression string `json:"expression,omitempty"`
	Saw        []Saw  `json:"saw,omitempty"`
}

// Evaluation of an expression for a claim.
type Evaluation struct {
	Expression string `json:"expression"`
	// Value is the result: true or false, or a text.
	Value any `json:"value,omitempty"`
	// Error is why there is no value.
	Error string `json:"error,omitempty"`
	Saw   []Saw  `json:"saw,omitempty"`
}

// Saw is a field that an expression looked at.
type Saw struct {
	// Field as the expression names it, such as class.driver.
	Field string `json:"field"`
	// Value as JSON, cut if it is long, or "absent".
	Value string `json:"value"`
}

// Related is an object that the claim names.
type Related struct {
	// Name in expressions, after "related.".
	Name string `json:"name"`
	// Resource is <plural>.<group>.
	Resource string `json:"resource"`
	// Object that the claim names, NAME or NAMESPACE/NAME; empty if it names none.
	Object string `json:"object,omitempty"`
	// Found says that the object is there.
	Found bool `json:"found"`
}

// InvalidExpression does not compile.
type InvalidExpression struct {
	// Registration is claimkind/NAME or classkind/NAME, and Field that of the expression in it.
	Registration string `json:"registration"`
	Field        string `json:"field"`
	// Line and Column of the mistake count from 1.
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	// Caret shows the line with a caret under the place.
	Caret string `json:"caret"`
}

// NearMiss is a class that meets all requirements but one.
type NearMiss struct {
	Class `json:",inline"`
	Unmet Requirement `json:"unmet"`
	// Value of the class's label; absent if it has no such label.
	Value *string `json:"value,omitempty"`
	// Dropped is why the claim could not get the class even if it met the requirement;
	// absent if it could.
	Dropped *Drop `json:"dropped,omitempty"`
}

// Requirement is one requirement of a selector.
type Requirement struct {
	Key string `json:"key"`
	// Operator in the form of package labels: in, notin, exists, !, =, ==, !=, gt, lt.
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
	// Text is the whole requirement, in kubectl's syntax.
	Text string `json:"text"`
}

// FieldError is what is wrong with a field.
type FieldError struct {
	// Field is empty if it is the whole claim.
	Field string `json:"field"`
	// Reason in one word: FieldUnknown, KindUnknown, VersionUnknown, or the API server's own.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func newReport() *Report {
	return &Report{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Report"}, Items: []Item{}}
}

func (i *Item) end(o Outcome, reason, message string) *Item {
	i.Outcome, i.Reason, i.Message = o, reason, message
	return i
}

// malformedClaim is the reason for which classbind itself refuses a claim.
const malformedClaim = "MalformedClaim"

func (i *Item) leftAlone(reason, why string) *Item { return i.end(LeftAlone, reason, why) }

func (i *Item) malformed(errs field.ErrorList) *Item {
	texts := make([]string, len(errs))
	for n, err := range errs {
		texts[n] = err.Error()
		i.Errors = append(i.Errors, FieldError{Field: err.Field, Reason: string(err.Type), Message: err.ErrorBody()})
	}
	return i.end(Malformed, malformedClaim, strings.Join(texts, "; "))
}

func (i *Item) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// decideBy records how the claim kind decides.
func (i *Item) decideBy(k *v1alpha1.ClaimKind) {
	i.Strategy, i.Seed, i.WhenUnmatched = k.Spec.Strategy, k.Spec.Seed, k.Spec.WhenUnmatched
}

// add records the selector's explanation.
func (i *Item) add(e selector.Explanation) {
	d := e.Decision
	if d.Claim.Selector != nil {
		text := d.Claim.Selector.String()
		i.Selector = &text
	}
	i.Reproducible, i.Warning = e.Reproducible, d.Warning()
	i.FarMisses, i.NotDefault = e.FarMisses, e.NotDefault
	i.OddsDependOn = d.View.Kind.Strategy.Depends
	known := d.Class != nil && (i.OddsDependOn == "" || len(e.Candidates) == 1)
	if known {
		class := nameOf(d.Class)
		i.Class, i.Reference = &class, d.View.Kind.Reference(d.Class)
	}
	for _, c := range e.Candidates {
		candidate := Candidate{Class: nameOf(c.Class), Chosen: known && c.Class == d.Class, Weight: c.Class.Weight, Score: c.Score}
		if c.Class.WeightErr != nil {
			candidate.WeightError = c.Class.WeightErr.Error()
		}
		if c.Odds.Total > 0 {
			candidate.Odds = &Odds{Probability: float64(c.Odds.Share) / float64(c.Odds.Total), Share: c.Odds.Share, Total: c.Odds.Total}
		}
		i.Candidates = append(i.Candidates, candidate)
	}
	for _, c := range e.Dropped {
		i.Dropped = append(i.Dropped, Dropped{Class: nameOf(c.Class), Drop: newDrop(&c)})
	}
	for _, m := range e.NearMisses {
		miss := NearMiss{Class: nameOf(m.Class), Unmet: Requirement{
			Key: m.Unmet.Key(), Operator: string(m.Unmet.Operator()),
			Values: slices.Sorted(slices.Values(m.Unmet.ValuesUnsorted())), Text: m.Unmet.String(),
		}}
		if m.Has {
			miss.Value = &m.Value
		}
		if m.Drop != nil {
			miss.Dropped = new(newDrop(m.Drop))
		}
		i.NearMisses = append(i.NearMisses, miss)
	}
}

// addFacts records what expressions say of the claim, and saw.
func (i *Item) addFacts(e selector.Explanation) {
	i.BindWhen, i.SelectorFrom, i.Partition = newEvaluation(e.BindWhen), newEvaluation(e.SelectorFrom), newEvaluation(e.Partition)
	for _, r := range e.Related {
		i.Related = append(i.Related, Related{Name: r.Name, Resource: r.Kind.Resource, Object: r.Object, Found: r.Found})
	}
}

func newEvaluation(e *selector.Evaluation) *Evaluation {
	if e == nil {
		return nil
	}
	evaluation := &Evaluation{Expression: e.Expression, Value: e.Value, Saw: newSaw(e.Saw)}
	if e.Err != nil {
		evaluation.Error = brief.Text(e.Err.Error(), v1alpha1.MaxMessageBytes)
	}
	return evaluation
}

func newDrop(d *selector.Drop) Drop {
	return Drop{Reason: d.Reason, Message: d.Text, Expression: d.Expression, Saw: newSaw(d.Saw)}
}

func newSaw(saw []expression.Saw) (all []Saw) {
	for _, s := range saw {
		all = append(all, Saw(s))
	}
	return all
}

func newInvalidExpression(registration string, e selector.InvalidExpression) InvalidExpression {
	return InvalidExpression{registration, e.Field, e.Err.Line, e.Err.Column, e.Err.Text, e.Err.Caret()}
}

func nameOf(c *selector.Class) Class {
	return Class{ClassKind: c.Kind.Name, Kind: c.Kind.GroupVersionKind.Kind, Namespace: c.Namespace, Name: c.Name}
}

// exit returns an error unless every claim is bound or left alone, by all of its ClaimKinds.
func (r *Report) exit() error {
	all, undecided, unmatched := sets.New[Claim](), sets.New[Claim](), sets.New[Claim]()
	for _, i := range r.Items {
		claim := i.Claim
		claim.ClaimKind = ""
		all.Insert(claim)
		switch i.Outcome {
		case Malformed, Undecided:
			undecided.Insert(claim)
		case Unmatched:
			unmatched.Insert(claim)
		case Bound, LeftAlone:
		}
	}
	switch {
	case undecided.Len() > 0:
		return failed(fmt.Errorf("%d of %d claims malformed or undecided", undecided.Len(), all.Len()))
	case unmatched.Len() > 0:
		return &exit.Error{Status: exitUnmatched, Err: fmt.Errorf("%d of %d claims without a class", unmatched.Len(), all.Len())}
	}
	return nil
}
