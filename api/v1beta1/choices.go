package v1beta1

// Strategy chooses one of several candidates.
//
// +kubebuilder:validation:Enum=Random;WeightedRandom;HighestWeight;LeastClaims;RoundRobin;LowestScore;HighestScore;External
type Strategy string

// The strategies.
const (
	Random         Strategy = "Random"
	WeightedRandom Strategy = "WeightedRandom"
	HighestWeight  Strategy = "HighestWeight"
	LeastClaims    Strategy = "LeastClaims"
	RoundRobin     Strategy = "RoundRobin"
	LowestScore    Strategy = "LowestScore"
	HighestScore   Strategy = "HighestScore"
	ByChooser      Strategy = "External"
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
