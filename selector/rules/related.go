package rules

import (
	"slices"

	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// namespaces is the resource of what expressions see as namespace.
const namespaces = "namespaces"

// Key identifies a RelatedKind.
type Key struct{ Resource, Version string }

// String is RESOURCE, or RESOURCE/VERSION.
func (k Key) String() string {
	if k.Version == "" {
		return k.Resource
	}
	return k.Resource + "/" + k.Version
}

// Kind is a resource whose objects claims name: the related ones of ClaimKinds, and Namespaces.
type Kind struct {
	// Name of the object in expressions; empty for Namespaces, and for the kind of several.
	Name string
	// Resource is <plural>.<group>, and Version empty for the one that the API server prefers.
	Resource, Version string
	// Fields that expressions look at.
	Fields *expression.Fields
}

// Key identifies the kind.
func (k *Kind) Key() Key { return Key{k.Resource, k.Version} }

// MetadataOnly says that expressions look at nothing but metadata.
func (k *Kind) MetadataOnly() bool {
	return !slices.ContainsFunc(k.Fields.Paths(), func(p fields.Path) bool { return p[0] != "metadata" })
}

// Same reports whether the same fields of the same objects are looked at.
func (k *Kind) Same(o *Kind) bool {
	return k.Key() == o.Key() && slices.EqualFunc(k.Fields.Paths(), o.Fields.Paths(), slices.Equal)
}
