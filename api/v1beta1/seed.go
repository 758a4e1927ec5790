package v1beta1

// Seed of a draw.
//
// +kubebuilder:validation:XValidation:rule="has(self.expression) == (has(self.from) && self.from == 'Expression')",message="expression and from: Expression go together: set both or neither",fieldPath=".expression"
type Seed struct {
	// From says where the seed comes from. With Claim, it is the claim's identity: the same claim
	// always gets the same class from the same classes. With Request, it is new for
	// each request. A claim with generateName has no identity yet when it is bound,
	// so both give it a new seed. With Expression, it is the value of the expression: all claims
	// of one namespace with the same value draw alike, such as the volumes of one StatefulSet.
	// Example: Request
	// +kubebuilder:default=Claim
	// +optional
	From SeedSource `json:"from,omitempty"`

	// Expression is a CEL expression, a string. Of a claim for which it is empty, the seed is the claim's
	// identity. If it fails, the claim is refused: ask with has() for what may be absent. It may use claim,
	// namespaceObject, related and, without BindLater, request.
	// Example: claim.metadata.labels.app
	// +optional
	Expression Expression `json:"expression,omitempty"`
}
