package status

import (
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
)

// describePaths writes into the status whether the paths are valid, and what the schema requires. Until
// they are compared, that of the last leader stays.
func (s *Writer) describePaths(k *v1beta1.ClaimKind, view *selector.View) {
	if paths, known := s.Registration.PathsOf(k); known {
		k.Status.Required, k.Status.SelectorAbsent = paths.Check.Required, paths.Check.SelectorAbsent
		setCondition(&k.Status.Conditions, paths.Condition(view), k.Generation)
	}
}
