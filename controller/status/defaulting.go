package status

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

// describeDefaulting writes whether the API server itself gives the default class, for a kind
// that asks for it. Until the leader knows, the condition of the last one stays.
func (s *Writer) describeDefaulting(k *v1alpha1.ClaimKind, status *v1alpha1.ClaimKindStatus) {
	if k.Spec.Defaulting != v1alpha1.DefaultingPolicy {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionDefaultedByPolicy)
		return
	}
	outcome, known := s.Policies.Outcome(k.Name)
	if !known {
		return
	}
	c := metav1.Condition{Type: v1alpha1.ConditionDefaultedByPolicy}
	if fault := outcome.Fault; fault != nil {
		c.Status, c.Reason = metav1.ConditionFalse, fault.Reason
		if fault.Reason == v1alpha1.ReasonNotConfigured { // It is a matter of seconds.
			c.Status = metav1.ConditionUnknown
		}
		c.Message = "claims without a selector come to classbind: " + fault.Text
	} else {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonConfigured
		c.Message = fmt.Sprintf("the API server itself gives the default class %s to claims without a selector", outcome.Class)
	}
	setCondition(&status.Conditions, c, k.Generation)
}
