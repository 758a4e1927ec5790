package selector

import (
	"github.com/classbind/classbind/selector/expression"
)

// RelatedKind is a resource of which claims name objects: the related ones of ClaimKinds, and
// Namespaces.
type RelatedKind struct {
	// Resource is <plural>.<group>, and Version empty for the one that the API server prefers.
	Resource, Version string
	// Fields that expressions look at.
	Fields *expression.Fields
}

// Objects are all objects of a RelatedKind. They are immutable, as Classes are.
type Objects struct {
	Kind *RelatedKind
	// Namespaced objects are in the namespace of the claim, unless the ClaimKind says so.
	Namespaced bool

	byName dict[className, *expression.Object]
}

// Find returns an object, nil if it is not known.
func (o *Objects) Find(namespace, name string) *expression.Object { panic("related") }
