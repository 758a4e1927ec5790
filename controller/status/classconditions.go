package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// weightsValid reports whether the weights of all classes can be read, and what they count as otherwise.
func weightsValid(classes *selector.Classes) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionWeightsValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWeightsValid,
		Message: "every weight can be read",
	}
	if invalid := classes.Malformed(); len(invalid) > 0 {
		counts := selector.ListFunc(invalid, func(c *selector.Class) string { return fmt.Sprintf("%s counts as %d", c, c.Weight) })
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonMalformedWeight
		c.Message = fmt.Sprintf("%s a malformed weight: %s; the first: %v", counted(invalid, "has", "have"), counts, invalid[0].WeightErr)
	}
	return c
}

// labelsHeld reports whether the labels of all classes are held.
func labelsHeld(classes *selector.Classes) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionLabelsHeld, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonLabelsHeld,
		Message: "no class has too many labels",
	}
	if over := classes.WithTooManyLabels(); len(over) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonTooManyLabels
		c.Message = fmt.Sprintf("%s offered to no claim, for more than %d labels, or %d bytes of them: %s",
			counted(over, "is", "are"), v1alpha1.MaxClassLabels, v1alpha1.MaxClassLabelBytes, named(over))
	}
	return c
}

// marksValid reports whether the marks of all classes, for default and cordoned, can be read.
func marksValid(classes *selector.Classes) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionMarksValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMarksValid,
		Message: "every mark is true or false",
	}
	if invalid := classes.WithInvalidMark(); len(invalid) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonMalformedMark
		c.Message = fmt.Sprintf("%s a mark that is neither true nor false: %s; the first: %v",
			counted(invalid, "has", "have"), named(invalid), invalid[0].MarkErr)
	}
	return c
}

// counted classes as the subject of a sentence, with its verb for one and for several.
func counted(classes []*selector.Class, one, several string) string {
	if len(classes) == 1 {
		return "1 class " + one
	}
	return fmt.Sprintf("%d classes %s", len(classes), several)
}
