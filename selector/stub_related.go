package selector

import (
	"github.com/classbind/classbind/selector/expression"
)

// relatedRule stands for what the core builds.
type relatedRule struct {
	name, resource, version string
	looks                   []expression.Path
}

// UsesRequest stands for what the core builds.
func (k *ClaimKind) UsesRequest() bool { return false }

// Same stands for what the core builds.
func (k *ClaimKind) Same(o *ClaimKind) bool { return k.Revision == o.Revision }
