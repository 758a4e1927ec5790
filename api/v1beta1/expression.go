package v1beta1

// Expression is an expression in the Common Expression Language (CEL), with the functions of Kubernetes 1.31, and
// labelSelectorMatches(selector, labels). It may look at any field of the variables claim and class. The variable namespaceObject is the
// metadata of the claim's Namespace. The variable request has the userInfo of the claim's creator, as in an AdmissionRequest. Objects
// that the claim names are related.NAME, and those that the class names are classRelated.NAME. An absent field is an error: ask with
// has() first.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=2048
type Expression string

// HasExpressions reports whether a ClaimKind has any expression.
func (s *ClaimKindSpec) HasExpressions() bool {
	return s.Selector.Expression != "" || s.Claims.When != "" || s.Choice.Score != "" || s.Choice.Seed.Expression != "" ||
		s.Classes.Partition != nil || len(s.Classes.Usage)+len(s.Classes.Fits)+len(s.Classes.Related) > 0
}

// HasExpressions reports whether a ClassKind has any expression.
func (s *ClassKindSpec) HasExpressions() bool {
	for i := range s.Capacity {
		for _, limit := range s.Capacity[i].Limits() {
			if limit != nil && limit.Expression != "" {
				return true
			}
		}
	}
	return s.Default.Expression != "" || s.Weight.Expression != "" || s.OfferWhen != "" || len(s.Fits)+len(s.Related) > 0
}

// Fit is a condition for a class to be given to a claim.
type Fit struct {
	// Name is the reason with which classes that do not fit are dropped.
	// Example: SameDriver
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?$`
	// +required
	Name string `json:"name"`

	// Expression is a CEL expression that is true if the class fits. An error drops the
	// class; if it is in a part that does not look at the class, of a ClaimKind, the claim is
	// refused (422). It may use claim, class, classRelated, namespaceObject and, in a ClaimKind, related and, without BindLater, request.
	// Terms joined by && are evaluated apart: those of the class alone when the class
	// changes; of those like class.FIELD == VALUE, an index finds the classes.
	// Example: class.driver == related.storage.provisioner
	// +required
	Expression Expression `json:"expression"`

	// Message says to the author of a claim why a class does not fit, after "is".
	// Example: of another driver
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// Partition puts claims and default classes into partitions.
type Partition struct {
	// Claim is a CEL expression for the partition of a claim, a string. It may use claim,
	// namespaceObject, related and, without BindLater, request.
	// Example: namespaceObject.metadata.labels.tenant
	// +required
	Claim Expression `json:"claim"`

	// Class is a CEL expression for the partition whose default a class can be, a string. It
	// may use class, without its status. A default class with an empty string is for the partitions without a
	// default of their own. Example: class.metadata.labels.tenant
	// +required
	Class Expression `json:"class"`
}

// Related is an object that a claim or a class names, or a list of all that a selector selects.
//
// +kubebuilder:validation:XValidation:rule="has(self.nameExpression) != has(self.selector)",message="name one of nameExpression and selector"
// +kubebuilder:validation:XValidation:rule="self.resource != 'secrets'",message="secrets cannot be related",fieldPath=".resource"
type Related struct {
	// Name of the object in expressions, after "related." or, of a ClassKind, after
	// "classRelated.". Example: plan
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z][A-Za-z0-9]*$`
	// +required
	Name string `json:"name"`

	// Resource is the kind of the object, PLURAL.GROUP, or PLURAL in the core group.
	// Example: storageclasses.storage.k8s.io
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Resource string `json:"resource"`

	// Version in which the object is read. Without it, it is the one that the API server
	// prefers. Example: v1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Version string `json:"version,omitempty"`

	// NameExpression is a CEL expression for the name of the object. If the result is empty, there is none.
	// It may use the related objects before this one and, in a ClaimKind, claim and namespaceObject,
	// or, in a ClassKind, class. If it fails because one of these objects is absent, this one is absent,
	// too. If it fails for another reason, a claim is refused (422), and of a class the object is absent.
	// Example: related.volumeClaim.spec.storageClassName
	// +optional
	NameExpression Expression `json:"nameExpression,omitempty"`

	// Selector of objects by their labels, in the place of a name. related.NAME is then the list of all objects that
	// it selects, in the namespace or of a kind without namespaces, by name. An empty selector selects all.
	// Expressions go through the list with all, exists, exists_one or map. If there are more than 64 that are not
	// expired, the claim is refused (422), or gets 503 if they are not of its own namespace. Only a ClaimKind may
	// have it. Example: {matchLabels: {purpose: storage}}
	// +optional
	Selector *LabelSelector `json:"selector,omitempty"`

	// NamespaceExpression is a CEL expression for the namespace of the object, or of those in the list. Without it,
	// objects of a namespaced kind are in the namespace of the claim, or of the class. A class without a
	// namespace then names no object, and a claim without one may have no list. Example: "'platform'"
	// +optional
	NamespaceExpression Expression `json:"namespaceExpression,omitempty"`

	// ValidUntil is a CEL expression for the time from which on the object counts as absent: a
	// timestamp, or a string as in RFC 3339. If the result is an empty string, it never expires. If it
	// fails or is malformed, the object counts as absent. It may use object, which is the related
	// object. Example: object.status.?validUntil.orValue('')
	// +optional
	ValidUntil Expression `json:"validUntil,omitempty"`
}
