package status

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// describeClasses writes what is wrong with the classes of a kind, nil if these are not known.
func describeClasses(k *v1beta1.ClassKind, classes *inventory.Classes, mistyped []rules.Invalid, known bool) {
	for _, condition := range []func(*inventory.Classes) metav1.Condition{weightsValid, marksValid, labelsHeld, capacitiesValid} {
		c := condition(cmp.Or(classes, &inventory.Classes{}))
		if classes != nil && (c.Type != v1beta1.ConditionCapacitiesValid || k.Spec.Capacity != nil) {
			setCondition(&k.Status.Conditions, c, k.Generation)
		} else {
			meta.RemoveStatusCondition(&k.Status.Conditions, c.Type)
		}
	}
	switch {
	case !k.Spec.HasExpressions():
		meta.RemoveStatusCondition(&k.Status.Conditions, v1beta1.ConditionExpressionsValid)
	case classes == nil:
		setExpressionsValid(&k.Status.Conditions, expressionsValid(rules.InvalidOfClasses(k), mistyped), known, k.Generation)
	default: // Classes are not read by expressions that do not compile.
		setExpressionsValid(&k.Status.Conditions, expressionsSucceed(classes, mistyped), known, k.Generation)
	}
}

// weightsValid reports whether the weights of all classes can be read, and what they count as otherwise.
func weightsValid(classes *inventory.Classes) metav1.Condition {
	c := met(v1beta1.ConditionWeightsValid, v1beta1.ReasonWeightsValid, "every weight can be read")
	if invalid := classes.Malformed(); len(invalid) > 0 {
		counts := selector.ListFunc(invalid, func(c *inventory.Class) string { return fmt.Sprintf("%s counts as %d", c, c.Weight) })
		c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonMalformedWeight
		c.Message = fmt.Sprintf("%s a malformed weight: %s; the first: %v", counted(invalid, "has", "have"), counts, invalid[0].WeightErr)
	}
	return c
}

// capacitiesValid reports whether the capacities of all classes can be read.
func capacitiesValid(classes *inventory.Classes) metav1.Condition {
	c := met(v1beta1.ConditionCapacitiesValid, v1beta1.ReasonCapacitiesValid, "every capacity can be read")
	if invalid := classes.WithMalformedCapacity(); len(invalid) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonMalformedCapacity
		c.Message = fmt.Sprintf("%s a malformed capacity: %s; the first: %v",
			counted(invalid, "has", "have"), named(invalid), invalid[0].Capacity.Err)
	}
	return c
}

// describeEnforced writes whether API servers ask about all claims of the classes of a kind, whether all classes are given
// out, and which are full.
func describeEnforced(
	k *v1beta1.ClassKind, classes *inventory.Classes, asked bool, room func(string, *inventory.Class) selector.Room,
) {
	if classes == nil || !k.IsHard() || !classes.Kind.IsHard() {
		meta.RemoveStatusCondition(&k.Status.Conditions, v1beta1.ConditionCapacityEnforced)
		return
	}
	var closed, full []*inventory.Class
	for _, c := range classes.All() {
		switch r := room("", c); {
		case r.Closed != "":
			closed = append(closed, c)
		case !r.Fits(c.Capacity, 1):
			full = append(full, c)
		}
	}
	c := met(v1beta1.ConditionCapacityEnforced, v1beta1.ReasonEnforced, "no class is given more claims than it holds")
	if len(full) > 0 {
		c.Reason = v1beta1.ReasonFull
		c.Message += fmt.Sprintf("; %s full: %s", counted(full, "is", "are"), named(full))
	}
	switch {
	case !asked:
		c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonNotConfigured
		c.Message = "classes may be given more claims than they hold: the API server does not ask classbind about all claims yet"
	case len(closed) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonNotCounted
		c.Message = fmt.Sprintf("%s given to no claim until claims are counted, after all writes that are in flight: %s",
			counted(closed, "is", "are"), named(closed))
	}
	setCondition(&k.Status.Conditions, c, k.Generation)
}

// labelsHeld reports whether the labels of all classes are held.
func labelsHeld(classes *inventory.Classes) metav1.Condition {
	c := met(v1beta1.ConditionLabelsHeld, v1beta1.ReasonLabelsHeld, "no class has too many labels")
	if over := classes.WithTooManyLabels(); len(over) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonTooManyLabels
		c.Message = fmt.Sprintf("%s offered to no claim, for more than %d labels, or %d bytes of them: %s",
			counted(over, "is", "are"), v1beta1.MaxClassLabels, v1beta1.MaxClassLabelBytes, named(over))
	}
	return c
}

// marksValid reports whether the marks of all classes, for default and cordoned, can be read.
func marksValid(classes *inventory.Classes) metav1.Condition {
	c := met(v1beta1.ConditionMarksValid, v1beta1.ReasonMarksValid, "every mark is true or false")
	if invalid := classes.WithInvalidMark(); len(invalid) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonMalformedMark
		c.Message = fmt.Sprintf("%s a mark that is neither true nor false: %s; the first: %v",
			counted(invalid, "has", "have"), named(invalid), invalid[0].MarkErr)
	}
	return c
}

// expressionsSucceed reports whether the expressions, which compile, can be evaluated for all classes.
func expressionsSucceed(classes *inventory.Classes, mistyped []rules.Invalid) metav1.Condition {
	c := expressionsValid(nil, mistyped)
	if failed := classes.Failed(); len(failed) > 0 && len(mistyped) == 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1beta1.ReasonExpressionFailed
		c.Message = fmt.Sprintf("%s offered to no claim, because the expression spec.offerWhen fails: %s; the first: %s",
			counted(failed, "is", "are"), named(failed), failed[0].OfferErr.Detail)
	}
	return c
}

// expressionsValid names at most MaxErrors of the invalid expressions, or of those that are mistyped.
func expressionsValid(invalid, mistyped []rules.Invalid) metav1.Condition {
	c := met(v1beta1.ConditionExpressionsValid, v1beta1.ReasonExpressionsValid, "every expression compiles")
	reason := v1beta1.ReasonInvalidExpression
	if len(invalid) == 0 {
		reason, invalid = v1beta1.ReasonMistypedExpression, mistyped
	}
	if len(invalid) == 0 {
		return c
	}
	var texts []string
	for _, e := range invalid[:min(len(invalid), v1beta1.MaxErrors)] {
		texts = append(texts, e.Error())
	}
	if more := len(invalid) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, strings.Join(texts, "; ")
	return c
}

// setExpressionsValid keeps the condition of the last leader, or of the last revision, until the types are known.
func setExpressionsValid(conditions *[]metav1.Condition, c metav1.Condition, typesKnown bool, generation int64) {
	isThere := meta.FindStatusCondition(*conditions, c.Type) != nil
	if typesKnown || c.Status == metav1.ConditionFalse || !isThere {
		setCondition(conditions, c, generation)
	}
}

// met is a condition that is True.
func met(conditionType, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// counted classes as the subject of a sentence, with its verb for one and for several.
func counted(classes []*inventory.Class, one, several string) string {
	if len(classes) == 1 {
		return "1 class " + one
	}
	return fmt.Sprintf("%d classes %s", len(classes), several)
}
