package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Ledger says how much of one class is taken, where its ClassKind has spec.capacity with the enforcement Hard. classbind
// keeps it, in its own namespace, for as long as there is the class. An edit by somebody else is noticed. Then
// no claim gets the class until its claims are counted again, after the in-flight window.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=classbind
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.class`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.spec.used`
// +kubebuilder:printcolumn:name="Reserved",type=integer,JSONPath=`.spec.reserved`
// +kubebuilder:printcolumn:name="Capacity",type=integer,JSONPath=`.spec.capacity`
// +kubebuilder:printcolumn:name="Open",type=boolean,JSONPath=`.spec.open`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Ledger struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +structType=atomic
	Spec LedgerSpec `json:"spec"`
}

// LedgerSpec is what is taken of a class. Amounts are in the unit of its capacity.
type LedgerSpec struct {
	// Class is the class, RESOURCE/NAME, or RESOURCE/NAMESPACE/NAME.
	// Example: datastoreclasses.storage.example.org/fast
	Class string `json:"class"`
	// Open is false while claims may be in flight for which there is no reservation. No claim gets
	// the class then.
	Open bool `json:"open"`
	// Capacity of the class; absent, it holds any amount.
	// +optional
	Capacity *int64 `json:"capacity,omitempty"`
	// PerNamespace is what the claims of one namespace may use; absent, they may use any amount.
	// +optional
	PerNamespace *int64 `json:"perNamespace,omitempty"`
	// Used by the claims that the leader counted.
	Used int64 `json:"used"`
	// Namespaces have the same by namespace, where there is PerNamespace.
	// +optional
	Namespaces map[string]int64 `json:"namespaces,omitempty"`
	// Counted has, by ClaimKind, the resourceVersion up to which the claims were counted.
	// +optional
	Counted map[string]int64 `json:"counted,omitempty"`
	// Reserved is the sum of the reservations.
	Reserved int64 `json:"reserved"`
	// Reservations are what writes of claims add that are not seen stored yet: the amount, how often it was reserved
	// before, the uid of the claim, the resourceVersion that is updated or "-", the ClaimKind, and NAMESPACE/NAME.
	// Example: 20 0 1b4e28ba-2fa1-11d2-883f-0016d3cca427 - postgresqlinstances.database.crossplane.io acme-team/orders
	// +listType=atomic
	// +optional
	Reservations []string `json:"reservations,omitempty"`
	// Seal is a hash by which an edit by somebody else is noticed.
	// +optional
	Seal string `json:"seal,omitempty"`
}

// LedgerList is a list of Ledgers.
//
// +kubebuilder:object:root=true
type LedgerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Ledger `json:"items"`
}
