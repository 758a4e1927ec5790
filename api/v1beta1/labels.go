package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LabelSelector selects namespaces or other objects by their labels. It is a metav1.LabelSelector with a schema for every part, so that no
// registration can break the webhook configuration that all of them share.
type LabelSelector struct {
	// MatchLabels are labels that an object must have. Example: {team: payments}
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.split('/')[0].size() <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="every key must be a label's: an optional DNS subdomain and a slash, then at most 63 letters, digits, dots, dashes and underscores"
	// +optional
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// MatchExpressions are further requirements; all must hold.
	// Example: [{key: team, operator: In, values: [payments, orders]}]
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelSelectorRequirement is one requirement of a LabelSelector.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",message="values are needed with In and NotIn, and not allowed with Exists and DoesNotExist",fieldPath=".values"
type LabelSelectorRequirement struct {
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

// Meta returns the selector as the libraries of Kubernetes take it.
func (s *LabelSelector) Meta() *metav1.LabelSelector {
	of := &metav1.LabelSelector{}
	for key, value := range s.MatchLabels {
		metav1.AddLabelToSelector(of, key, string(value))
	}
	for _, e := range s.MatchExpressions {
		r := metav1.LabelSelectorRequirement{Key: e.Key, Operator: e.Operator}
		for _, value := range e.Values {
			r.Values = append(r.Values, string(value))
		}
		of.MatchExpressions = append(of.MatchExpressions, r)
	}
	return of
}
