package v1beta1

// ClaimsQuantity is the quantity of which each claim uses 1, unless its ClaimKind says otherwise.
const ClaimsQuantity = "claims"

// QuantityName names what claims use of a class, such as claims, memory or licenses.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
type QuantityName string

// Capacity is where a class has how much its claims may use of one quantity. Each value is a Kubernetes quantity, such as 50, "50" or
// "10Ti". It counts in whole units: a fraction is left out. A class without a value has no limit. A class whose value is malformed or
// negative holds nothing.
type Capacity struct {
	// Name of the quantity. A claim uses as much of it as classes.usage of its ClaimKind says. If
	// that does not name the quantity, a claim uses none of it, but 1 of the quantity claims.
	// Example: memory
	// +required
	Name QuantityName `json:"name"`

	// Total is where a class has how much all its claims may use together. Without it, that is
	// the annotation classbind.io/capacity for the quantity claims, and
	// classbind.io/capacity-NAME for another. Example: {path: .spec.capacity}
	// +optional
	Total Source `json:"total,omitzero"`

	// PerNamespace is where a class has how much the claims of one namespace may use of it. Claims
	// without a namespace count like those of one. Without it, only the total is a limit.
	// Example: {annotation: example.org/namespace-capacity}
	// +optional
	PerNamespace *Source `json:"perNamespace,omitempty"`
}

// Usage is how much claims use of a quantity of the capacity of their class.
type Usage struct {
	// Name of the quantity, as ClassKinds have it in their capacity. Example: memory
	// +required
	Name QuantityName `json:"name"`

	// Expression is a CEL expression for how much a claim uses: a number, or a string that is a
	// Kubernetes quantity. A fraction is rounded up. It may use claim, namespaceObject and
	// related. Of a claim that is stored, it is evaluated again when the claim, its Namespace or a
	// related object changes. Example: related.plan.spec.memory
	// +required
	Expression Expression `json:"expression"`
}

// HasCapacity reports whether the claims of a class may use only so much of it.
func (k *ClassKind) HasCapacity() bool { return len(k.Spec.Capacity) > 0 }

// LimitFields are the fields of the limits of a quantity.
var LimitFields = [2]string{"total", "perNamespace"}

// Limits are where a class has the limits of the quantity, in the order of LimitFields, nil where there is none.
func (c *Capacity) Limits() [len(LimitFields)]*Source {
	total := c.Total
	if total == (Source{}) {
		total.Annotation = c.annotation()
	}
	return [len(LimitFields)]*Source{&total, c.PerNamespace}
}

// annotation of a class that has the total, where its ClassKind names no other place.
func (c *Capacity) annotation() MetadataKey {
	if c.Name == ClaimsQuantity {
		return CapacityAnnotation
	}
	return MetadataKey(CapacityAnnotation + "-" + c.Name)
}
