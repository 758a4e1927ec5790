package status

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/openapi"
)

// describePaths writes into the status whether the paths are valid, and what the schema requires. It
// returns the condition, nil if they are not compared yet.
func (s *Writer) describePaths(k *v1alpha1.ClaimKind, view *selector.View) *metav1.Condition {
	paths, known := s.Registration.PathsOf(k)
	if !known {
		return nil
	}
	k.Status.Required, k.Status.SelectorAbsent = paths.Check.Required, paths.Check.SelectorAbsent
	setCondition(&k.Status.Conditions, pathsValid(paths, view), k.Generation)
	return meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionPathsValid)
}

func pathsValid(paths registry.Paths, view *selector.View) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionPathsValid, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonSchemaUnknown}
	reason, problem := view.PathsProblem(paths.Check)
	switch {
	case reason != "" && (paths.Err == nil || selector.OfPaths(reason)):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, problem
	case paths.Err != nil:
		if !errors.Is(paths.Err, openapi.ErrNoSchema) {
			condition.Reason = registry.ReasonFor(paths.Err)
		}
		condition.Message = fmt.Sprintf("the paths cannot be compared with the schema of the claims: %v", paths.Err)
	case paths.Check.Unknown != "":
		condition.Message = paths.Check.Unknown
	default:
		condition = met(v1alpha1.ConditionPathsValid, v1alpha1.ReasonPathsValid, "the schema of the claims has the fields of every path")
		if len(paths.Check.Absent) > 0 {
			condition.Message += ", but for the defaults " + strings.Join(paths.Check.Absent, " and ") + ", which no claim needs"
		}
	}
	return condition
}
