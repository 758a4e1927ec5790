package selector

import (
	"fmt"

	"github.com/classbind/classbind/api/v1alpha1"
)

// A reference carries no uid: restored from a backup, the class would have another.
type (
	objectReference struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Namespace  string `json:"namespace,omitempty"`
		Name       string `json:"name"`
	}
	typedLocalObjectReference struct {
		APIGroup string `json:"apiGroup,omitempty"`
		Kind     string `json:"kind"`
		Name     string `json:"name"`
	}
	localObjectReference struct {
		Name string `json:"name"`
	}
)

// Reference to a class in the form that claims of this kind take, for encoding as JSON.
func (k *ClaimKind) Reference(c *Class) any {
	gvk := c.Kind.GroupVersionKind
	switch k.format {
	case v1alpha1.TypedLocalObjectReference:
		return typedLocalObjectReference{APIGroup: gvk.Group, Kind: gvk.Kind, Name: c.Name}
	case v1alpha1.LocalObjectReference:
		return localObjectReference{Name: c.Name}
	case v1alpha1.Name:
		return c.Name
	default:
		return objectReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: c.Namespace, Name: c.Name}
	}
}

// ReferencePath is the names of the fields that lead to the reference, from the outermost in.
func (k *ClaimKind) ReferencePath() []string { return k.classRef }

func (k *ClaimKind) namesNamespace() bool {
	return k.format == v1alpha1.ObjectReference
}

func (k *ClaimKind) namesKind() bool {
	return k.format == v1alpha1.ObjectReference || k.format == v1alpha1.TypedLocalObjectReference
}

// fault is why no claim can be bound to these classes, nil if one can.
func (k *ClaimKind) fault(classes []*Index) *Fault {
	if k.Strategy.place == nil {
		return &Fault{v1alpha1.ReasonUnknownStrategy, fmt.Sprintf("claim kind %q has the strategy %q, which this release of classbind does not know", k.Name, k.Strategy.Name)}
	}
	if len(classes) <= 1 || k.namesKind() {
		return nil
	}
	names := make([]string, len(classes))
	for i, x := range classes {
		names[i] = x.Kind.Name
	}
	return &Fault{v1alpha1.ReasonAmbiguousReference, fmt.Sprintf("claim kind %q has class kinds %q, which a reference of the form %s cannot tell apart: set spec.classRefFormat to ObjectReference or TypedLocalObjectReference, or leave one class kind", k.Name, names, k.format)}
}
