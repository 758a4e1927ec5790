package v1beta1

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
