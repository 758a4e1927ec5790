package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// classConditions say what is wrong with the classes of a kind, nil if these are not known.
func (s *Writer) classConditions(k *v1beta1.ClassKind, classes *inventory.Classes) (all []metav1.Condition) {
	if k.Spec.HasExpressions() {
		mistyped, known := s.classTypes.of(k)
		c := expressionsSucceed(k, classes, mistyped)
		all = append(all, untilTyped(k.Status.Conditions, c, known))
	}
	if classes == nil {
		return all
	}
	if k.HasCapacity() {
		c := met(v1beta1.ConditionCapacitiesValid, v1beta1.ReasonCapacitiesValid, "every capacity can be read")
		all = append(all, without(c, classes.Faulty(inventory.MalformedCapacity), v1beta1.ReasonMalformedCapacity, "a malformed capacity",
			func(c *inventory.Class) error { return c.CapacityErr() }))
	}
	weights := met(v1beta1.ConditionWeightsValid, v1beta1.ReasonWeightsValid, "every weight can be read")
	marks := met(v1beta1.ConditionMarksValid, v1beta1.ReasonMarksValid, "every mark is true or false")
	labels := met(v1beta1.ConditionLabelsIndexed, v1beta1.ReasonLabelsIndexed, "no class has too many labels")
	return append(all,
		without(weights, classes.Faulty(inventory.MalformedWeight), v1beta1.ReasonMalformedWeight,
			"a malformed weight, which counts as 1, or as 0 if it is negative",
			func(c *inventory.Class) error { return c.WeightErr }),
		without(marks, classes.Faulty(inventory.MalformedMark), v1beta1.ReasonMalformedMark, "a mark that is neither true nor false",
			func(c *inventory.Class) error { return c.MarkErr }),
		without(labels, classes.Faulty(inventory.TooManyLabels), v1beta1.ReasonTooManyLabels,
			fmt.Sprintf("more than %d labels, or %d bytes of them, which no claim is offered",
				v1beta1.MaxClassLabels, v1beta1.MaxClassLabelBytes), nil))
}

// without classes that have something wrong, the condition is met. why returns what exactly is wrong with a class.
func without(c metav1.Condition, faulty []*inventory.Class, reason, what string, why func(*inventory.Class) error) metav1.Condition {
	if len(faulty) == 0 {
		return c
	}
	c = failed(c, reason, "classes with %s: %s", what, named(faulty))
	if why != nil {
		c.Message += fmt.Sprintf("; the first: %v", why(faulty[0]))
	}
	return c
}

// expressionsSucceed reports whether the expressions can be evaluated for all classes, or, while these are not known, whether they compile.
func expressionsSucceed(k *v1beta1.ClassKind, classes *inventory.Classes, mistyped []rules.Invalid) metav1.Condition {
	if classes == nil { // They are not read by expressions that do not compile.
		return expressionsValid(rules.InvalidOfClasses(k), mistyped)
	}
	c := expressionsValid(nil, mistyped)
	if len(mistyped) > 0 {
		return c
	}
	return without(c, classes.Faulty(inventory.OfferFailed), v1beta1.ReasonExpressionFailed,
		"no result of the expression spec.offerWhen, which no claim is offered",
		func(c *inventory.Class) error { return errors.New(c.OfferErr.Detail) })
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
	return failed(c, reason, "%s", strings.Join(texts, "; "))
}

// untilTyped keeps the condition of the last leader, or of the last revision, until the types are known.
func untilTyped(conditions []metav1.Condition, c metav1.Condition, typesKnown bool) metav1.Condition {
	if before := last(conditions, c.Type); !typesKnown && c.Status == metav1.ConditionTrue && before.Type != "" {
		return before
	}
	return c
}

// describeNamed reports whether the claim kinds that a class kind names are registered, and says in a Ready condition that is True
// why the first of those that are not offered the classes is not. The condition stays True if others are: replicas that start wait
// for these classes. It is false while the inventory is about to be updated.
func (s *Writer) describeNamed(
	ctx context.Context, k *v1beta1.ClassKind, ready *metav1.Condition,
) (c metav1.Condition, known bool, err error) {
	all, _, err := registry.List(ctx, s.Client)
	if err != nil {
		return c, false, err
	}
	c = met(v1beta1.ConditionClaimKindsRegistered, v1beta1.ReasonRegistered, "every claim kind is registered")
	served := rules.Served(k, all)
	var missing []string
	var refused *inventory.Fault
	offered := false
	for _, name := range rules.ServedNames(k, served) {
		i := slices.IndexFunc(served, func(c *v1beta1.ClaimKind) bool { return c.Name == name })
		if i < 0 {
			missing = append(missing, name)
			continue
		}
		view := s.Snapshot()[name]
		if view == nil || view.Kind.Revision != inventory.RevisionOf(served[i]) {
			return c, false, nil
		}
		fault := view.FaultOf(k.Name)
		refused, offered = cmp.Or(refused, fault), offered || fault == nil
	}
	switch {
	case len(missing) > 0:
		c = failed(c, v1beta1.ReasonNotRegistered, "%s", unregistered("spec.claimKinds", "ClaimKind", missing))
	case refused == nil && !offered:
		c = failed(c, v1beta1.ReasonNoClaimKinds,
			"no claim is offered the classes: name a ClaimKind in spec.claimKinds, or this ClassKind in spec.classes.kinds of one")
	}
	if refused != nil && ready.Status == metav1.ConditionTrue {
		ready.Reason, ready.Message = refused.Reason, refused.Text
		if !offered {
			ready.Status = metav1.ConditionFalse
		}
	}
	return c, true, nil
}

// unregistered says which names in a field no registration of a kind has.
func unregistered(field, kind string, names []string) string {
	quoted := make([]string, len(names))
	for i, name := range slices.Sorted(slices.Values(names)) {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%s has names that no %[2]s has: %[3]s: correct the name, which is <plural>.<group>, or create the %[2]s",
		field, kind, strings.Join(quoted, ", "))
}

// rivals are the names of a class kind and of those that may be left out for it, or offered when it goes.
func (s *Writer) rivals(k *inventory.ClassKind) []string {
	names := []string{k.Name}
	snapshot := s.Snapshot()
	for _, name := range k.ClaimKinds {
		view := snapshot[name]
		if view == nil || !view.Kind.Demand.ConfusesKinds() {
			continue
		}
		for _, classes := range view.Classes {
			names = append(names, classes.Kind.Name)
		}
		for _, other := range view.LeftOut {
			names = append(names, other.Name)
		}
	}
	return names
}
