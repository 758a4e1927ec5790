package v1beta1

// Capacity is where a class has how much its claims may use. Each value is a quantity, such as 50, "50" or "10Ti". It counts in whole
// units: a fraction is left out. A class without a value has no limit. A class whose value is malformed or negative holds nothing.
type Capacity struct {
	// Total is where a class has how much all its claims may use together.
	// Example: {path: .spec.capacity}
	// +kubebuilder:default={annotation: classbind.io/capacity}
	// +optional
	Total Source `json:"total,omitzero"`

	// PerNamespace is where a class has how much the claims of one namespace may use of it. Claims
	// without a namespace count like those of one. Without it, only the total is a limit.
	// Example: {annotation: example.org/namespace-capacity}
	// +optional
	PerNamespace *Source `json:"perNamespace,omitempty"`
}

// HasCapacity reports whether the claims of a class may use only so much of it.
func (k *ClassKind) HasCapacity() bool { return k.Spec.Capacity != nil }

// LimitFields are the fields of the limits.
var LimitFields = [2]string{"total", "perNamespace"}

// Limits are where a class has the limits, in the order of LimitFields, nil where there is none.
func (c *Capacity) Limits() [len(LimitFields)]*Source {
	if c == nil {
		return [len(LimitFields)]*Source{}
	}
	return [len(LimitFields)]*Source{&c.Total, c.PerNamespace}
}
