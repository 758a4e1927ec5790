package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClassNamespaces are the namespaces whose classes are offered to a claim.
//
// +kubebuilder:validation:XValidation:rule="!has(self.from) || (self.from == 'Names') == (has(self.names) && self.names.size() > 0)",message="names are needed with Names, and not allowed with SameAsClaim and All",fieldPath=".names"
type ClassNamespaces struct {
	// From is SameAsClaim for the claim's own namespace, All, or Names. With
	// SameAsClaim, a claim without a namespace is offered no namespaced class. With
	// All, an author of classes in one namespace can attract claims of all others.
	// Example: All
	// +kubebuilder:default=SameAsClaim
	// +optional
	From ClassNamespacesFrom `json:"from,omitempty"`

	// Names of the namespaces, with Names. If the reference carries no namespace,
	// name exactly one: the one where the controller of the claim looks. Example: [platform]
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Names []NamespaceName `json:"names,omitempty"`
}

// ClassNamespacesFrom says which namespaces ClassNamespaces contains.
//
// +kubebuilder:validation:Enum=SameAsClaim;All;Names
type ClassNamespacesFrom string

// The namespaces from which a claim can be offered classes.
const (
	FromSameAsClaim ClassNamespacesFrom = "SameAsClaim"
	FromAll         ClassNamespacesFrom = "All"
	FromNames       ClassNamespacesFrom = "Names"
)

// NamespaceName is the name of a namespace.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type NamespaceName string

// NamespaceSelector selects namespaces by their labels. It is a metav1.LabelSelector with a schema for every part, so that no registration
// can break the webhook configuration that all of them share.
type NamespaceSelector struct {
	// MatchLabels are labels that a namespace must have. Example: {team: payments}
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.split('/')[0].size() <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="every key must be a label's: an optional DNS subdomain and a slash, then at most 63 letters, digits, dots, dashes and underscores"
	// +optional
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// MatchExpressions are further requirements; all must hold.
	// Example: [{key: team, operator: In, values: [payments, orders]}]
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	MatchExpressions []NamespaceSelectorRequirement `json:"matchExpressions,omitempty"`
}

// NamespaceSelectorRequirement is one requirement of a NamespaceSelector.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",message="values are needed with In and NotIn, and not allowed with Exists and DoesNotExist",fieldPath=".values"
type NamespaceSelectorRequirement struct {
	// Key of the label. Example: team
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.split('/')[0].size() <= 253",message="the part before the slash must be at most 253 characters long"
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +required
	Key string `json:"key"`
	// Operator is the relation of the label to Values. Example: NotIn
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	// +required
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values of the label. Example: [payments, orders]
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Values []LabelValue `json:"values,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue string
