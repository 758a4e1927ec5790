package status

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// describeExpressions writes whether the expressions of a claim kind compile, and whether the
// objects that its claims name are known.
func (s *Writer) describeExpressions(k *v1alpha1.ClaimKind, view *selector.View, status *v1alpha1.ClaimKindStatus) {
	if k.Spec.HasExpressions() {
		setCondition(&status.Conditions, expressionsValid(view.Kind.InvalidExpressions()), k.Generation)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionExpressionsValid)
	}
	related := s.Registration.RelatedState(k.Name)
	if related.Reason == "" {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionRelatedKnown)
		return
	}
	known := metav1.Condition{
		Type: v1alpha1.ConditionRelatedKnown, Status: metav1.ConditionFalse, Reason: related.Reason, Message: related.Message,
	}
	if related.Known {
		known.Status = metav1.ConditionTrue
	}
	setCondition(&status.Conditions, known, k.Generation)
}

// describeClassExpressions writes whether the expressions of a class kind compile, and can be
// evaluated for all classes, nil if these are not known.
func describeClassExpressions(k *v1alpha1.ClassKind, classes *selector.Classes, status *v1alpha1.ClassKindStatus) {
	if !k.Spec.HasExpressions() {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionExpressionsValid)
		return
	}
	if classes == nil {
		setCondition(&status.Conditions, expressionsValid(selector.InvalidClassExpressions(k)), k.Generation)
		return
	}
	valid := expressionsValid(nil) // Classes are not read by expressions that do not compile.
	if failed := classes.Failed(); len(failed) > 0 {
		valid.Status, valid.Reason = metav1.ConditionFalse, v1alpha1.ReasonExpressionFailed
		valid.Message = fmt.Sprintf("%s offered to no claim, because the expression spec.offerWhen fails: %s; the first: %s",
			counted(failed, "is", "are"), named(failed), failed[0].OfferErr.Detail)
	}
	setCondition(&status.Conditions, valid, k.Generation)
}

// expressionsValid names at most MaxErrors of the invalid expressions.
func expressionsValid(invalid []selector.InvalidExpression) metav1.Condition {
	if len(invalid) == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionExpressionsValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonExpressionsValid,
			Message: "every expression compiles",
		}
	}
	var texts []string
	for _, e := range invalid[:min(len(invalid), v1alpha1.MaxErrors)] {
		texts = append(texts, e.Error())
	}
	if more := len(invalid) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionExpressionsValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidExpression,
		Message: strings.Join(texts, "; "),
	}
}
