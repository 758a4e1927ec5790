package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// weightsValid says whether the weights of all classes can be read, and what they count as otherwise.
func weightsValid(classes *selector.Classes) metav1.Condition {
	malformed := classes.Malformed()
	if len(malformed) == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionWeightsValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWeightsValid,
			Message: "every weight can be read",
		}
	}
	have := "1 class has"
	if len(malformed) > 1 {
		have = fmt.Sprintf("%d classes have", len(malformed))
	}
	counts := selector.ListFunc(malformed, func(c *selector.Class) string { return fmt.Sprintf("%s counts as %d", c, c.Weight) })
	return metav1.Condition{
		Type: v1alpha1.ConditionWeightsValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMalformedWeight,
		Message: fmt.Sprintf("%s a malformed weight: %s; the first: %v", have, counts, malformed[0].WeightErr),
	}
}

// labelsHeld says whether the labels of all classes are held.
func labelsHeld(classes *selector.Classes) metav1.Condition {
	over := classes.Overlabelled()
	if len(over) == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionLabelsHeld, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonLabelsHeld,
			Message: "no class has too many labels",
		}
	}
	offered := "1 class is"
	if len(over) > 1 {
		offered = fmt.Sprintf("%d classes are", len(over))
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionLabelsHeld, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTooManyLabels,
		Message: fmt.Sprintf("%s offered to no claim, for more than %d labels, or %d bytes of them: %s",
			offered, v1alpha1.MaxClassLabels, v1alpha1.MaxClassLabelBytes, named(over)),
	}
}

// marksValid says whether the marks of all classes, for default and cordoned, can be read.
func marksValid(classes *selector.Classes) metav1.Condition {
	mismarked := classes.Mismarked()
	if len(mismarked) == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionMarksValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMarksValid,
			Message: "every mark is true or false",
		}
	}
	have := "1 class has"
	if len(mismarked) > 1 {
		have = fmt.Sprintf("%d classes have", len(mismarked))
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionMarksValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMalformedMark,
		Message: fmt.Sprintf("%s a mark that is neither true nor false: %s; the first: %v", have, named(mismarked), mismarked[0].MarkErr),
	}
}
