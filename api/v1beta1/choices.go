package v1beta1

// Choice chooses one of several candidates.
//
// +kubebuilder:validation:XValidation:rule="has(self.score) == (has(self.strategy) && self.strategy in ['LowestScore', 'HighestScore'])",message="score and the strategy LowestScore or HighestScore go together: set both or neither",fieldPath=".score"
// +kubebuilder:validation:XValidation:rule="has(self.external) == (has(self.strategy) && self.strategy == 'External')",message="external and the strategy External go together: set both or neither",fieldPath=".external"
type Choice struct {
	// Strategy chooses one of several candidates. Random gives every class an equal
	// share, and WeightedRandom a share proportional to its weight. HighestWeight
	// takes the heaviest class, with equal shares among ties. LeastClaims takes the
	// class with the fewest bound claims of this kind, with weighted shares among
	// ties; classbind needs to list and watch the claims for it. Where classes have a
	// capacity, it takes the one with the smallest share in use. RoundRobin takes the
	// class that was given to a claim of this kind the longest ago, and ignores
	// weights; each replica of classbind takes its own turns. LowestScore and HighestScore
	// take the class with the best score, with weighted shares among ties. External
	// asks a program, the chooser. Example: LeastClaims
	// +kubebuilder:default=WeightedRandom
	// +optional
	Strategy Strategy `json:"strategy,omitempty"`

	// Score is a CEL expression, a number for each candidate, for the strategies LowestScore
	// and HighestScore. It may use claim, class, namespaceObject, related and, without BindLater,
	// request. Example: class.spec.pricePerHour * claim.spec.nodes
	// +optional
	Score Expression `json:"score,omitempty"`

	// External is the chooser, for the strategy External. Prefer an expression or objects with
	// scores where they are enough: they cannot be down. Example: {host: chooser.example.org:443,
	// fields: {class: [{path: .spec.price}]}}
	// +optional
	External *External `json:"external,omitempty"`

	// Seed of the draw: claims with the same seed get the same class from the same classes.
	// Example: {from: Expression, expression: claim.metadata.labels.app}
	// +kubebuilder:default={}
	// +optional
	Seed Seed `json:"seed,omitzero"`

	// Annotate says what a bound claim is annotated with: Nothing, or the Decision, which
	// says why it has its class. Example: Decision
	// +kubebuilder:default=Nothing
	// +optional
	Annotate Annotate `json:"annotate,omitempty"`
}

// Strategy chooses one of several candidates.
//
// +kubebuilder:validation:Enum=Random;WeightedRandom;HighestWeight;LeastClaims;RoundRobin;LowestScore;HighestScore;External
type Strategy string

// The strategies.
const (
	Random           Strategy = "Random"
	WeightedRandom   Strategy = "WeightedRandom"
	HighestWeight    Strategy = "HighestWeight"
	LeastClaims      Strategy = "LeastClaims"
	RoundRobin       Strategy = "RoundRobin"
	LowestScore      Strategy = "LowestScore"
	HighestScore     Strategy = "HighestScore"
	ExternalStrategy Strategy = "External"
)

// SeedSource is where the seed of a draw comes from.
//
// +kubebuilder:validation:Enum=Claim;Request;Expression
type SeedSource string

// Where the seed of a draw comes from.
const (
	SeedClaim      SeedSource = "Claim"
	SeedRequest    SeedSource = "Request"
	SeedExpression SeedSource = "Expression"
)

// Precedence is which class a name means that classes of several kinds may have.
//
// +kubebuilder:validation:Enum=Name;Listed
type Precedence string

// Which class a name means that classes of several kinds may have.
const (
	PrecedenceName   Precedence = "Name"
	PrecedenceListed Precedence = "Listed"
)

// UseSubject is whose right to use a class counts.
//
// +kubebuilder:validation:Enum=Namespace;Requester
type UseSubject string

// Whose right to use a class counts.
const (
	UseByNamespace UseSubject = "Namespace"
	UseByRequester UseSubject = "Requester"
)

// Annotate is what a bound claim is annotated with.
//
// +kubebuilder:validation:Enum=Nothing;Decision
type Annotate string

// What a bound claim is annotated with.
const (
	AnnotateNothing  Annotate = "Nothing"
	AnnotateDecision Annotate = "Decision"
)

// WhenUnmatched is the answer to a claim that no class matches.
//
// +kubebuilder:validation:Enum=Admit;Deny;BindLater
type WhenUnmatched string

// The answers to a claim that no class matches.
const (
	Admit     WhenUnmatched = "Admit"
	Deny      WhenUnmatched = "Deny"
	BindLater WhenUnmatched = "BindLater"
)

// OnDelete is the answer to the deletion of a class that claims have.
//
// +kubebuilder:validation:Enum=Allow;Warn;Deny
type OnDelete string

// The answers to the deletion of a class that claims have.
const (
	AllowDeletion  OnDelete = "Allow"
	WarnOfDeletion OnDelete = "Warn"
	DenyDeletion   OnDelete = "Deny"
)

// Denies reports whether the deletion is refused. An unknown value, which another release accepted, counts as Deny.
func (o OnDelete) Denies() bool { return o != "" && o != AllowDeletion && o != WarnOfDeletion }

// WhenAbsent is what a claim without a selector gets.
//
// +kubebuilder:validation:Enum=Default;DefaultIfAny;Only;Any;LeaveAlone
type WhenAbsent string

// What a claim without a selector gets.
const (
	NoSelectorDefault      WhenAbsent = "Default"
	NoSelectorDefaultIfAny WhenAbsent = "DefaultIfAny"
	NoSelectorOnly         WhenAbsent = "Only"
	NoSelectorAny          WhenAbsent = "Any"
	NoSelectorLeaveAlone   WhenAbsent = "LeaveAlone"
)

// Defaulting is who gives the default class to a claim without an opinion.
//
// +kubebuilder:validation:Enum=Webhook;Policy
type Defaulting string

// Who gives the default class to a claim without an opinion.
const (
	DefaultingWebhook Defaulting = "Webhook"
	DefaultingPolicy  Defaulting = "Policy"
)

// OnUnbind is the answer to an update that removes the class reference of a claim.
//
// +kubebuilder:validation:Enum=Restore;Allow
type OnUnbind string

// The answers to an update that removes the class reference of a claim.
const (
	RestoreReference OnUnbind = "Restore"
	AllowUnbind      OnUnbind = "Allow"
)

// Order of a claim kind's webhook among those of all programs. The API server calls
// mutating webhooks in the order of the names of their configurations.
//
// +kubebuilder:validation:Enum=Last;First
type Order string

// The orders.
const (
	OrderLast  Order = "Last"
	OrderFirst Order = "First"
)

// Configuration is the name of the MutatingWebhookConfiguration for claims of this order.
func (o Order) Configuration() string {
	if o == OrderFirst {
		return FirstConfiguration
	}
	return LastConfiguration
}

// FailurePolicy is the failurePolicy of a webhook.
//
// +kubebuilder:validation:Enum=Fail;Ignore
type FailurePolicy string

// The failure policies of a webhook.
const (
	Fail   FailurePolicy = "Fail"
	Ignore FailurePolicy = "Ignore"
)
