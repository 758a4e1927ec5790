package selector

import (
	"slices"

	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// namespaces is the resource of what expressions see as namespace.
const namespaces = "namespaces"

// RelatedKey identifies a RelatedKind.
type RelatedKey struct{ Resource, Version string }

// String is RESOURCE, or RESOURCE/VERSION.
func (k RelatedKey) String() string {
	if k.Version == "" {
		return k.Resource
	}
	return k.Resource + "/" + k.Version
}

// RelatedKind is a resource whose objects claims name: the related ones of ClaimKinds, and
// Namespaces.
type RelatedKind struct {
	// Name of the object in expressions; empty for Namespaces, and for the kind of several.
	Name string
	// Resource is <plural>.<group>, and Version empty for the one that the API server prefers.
	Resource, Version string
	// Fields that expressions look at.
	Fields *expression.Fields
}

// Key identifies the kind.
func (k *RelatedKind) Key() RelatedKey { return RelatedKey{k.Resource, k.Version} }

// MetadataOnly says that expressions look at nothing but metadata.
func (k *RelatedKind) MetadataOnly() bool {
	return !slices.ContainsFunc(k.Fields.Paths(), func(p fields.Path) bool { return p[0] != "metadata" })
}

// Same reports whether the same fields of the same objects are looked at.
func (k *RelatedKind) Same(o *RelatedKind) bool {
	return k.Key() == o.Key() && slices.EqualFunc(k.Fields.Paths(), o.Fields.Paths(), slices.Equal)
}
