package explain

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
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
