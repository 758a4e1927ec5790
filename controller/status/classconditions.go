package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
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
	if k.Spec.Capacity != nil {
		all = append(all, capacitiesValid(classes))
	}
	return append(all, weightsValid(classes), marksValid(classes), labelsHeld(classes))
}

// weightsValid reports whether the weights of all classes can be read, and what they count as otherwise.
func weightsValid(classes *inventory.Classes) metav1.Condition {
	c := met(v1beta1.ConditionWeightsValid, v1beta1.ReasonWeightsValid, "every weight can be read")
	if invalid := classes.Faulty(inventory.MalformedWeight); len(invalid) > 0 {
		counts := selector.ListFunc(invalid, func(c *inventory.Class) string { return fmt.Sprintf("%s counts as %d", c, c.Weight) })
		c = failed(c, v1beta1.ReasonMalformedWeight, "%s a malformed weight: %s; the first: %v",
			counted(invalid, "has", "have"), counts, invalid[0].WeightErr)
	}
	return c
}

func capacitiesValid(classes *inventory.Classes) metav1.Condition {
	c := met(v1beta1.ConditionCapacitiesValid, v1beta1.ReasonCapacitiesValid, "every capacity can be read")
	if invalid := classes.Faulty(inventory.MalformedCapacity); len(invalid) > 0 {
		c = failed(c, v1beta1.ReasonMalformedCapacity, "%s a malformed capacity: %s; the first: %v",
			counted(invalid, "has", "have"), named(invalid), invalid[0].Capacity.Err)
	}
	return c
}

// capacityEnforced reports whether API servers ask about all claims of the classes of a kind, whether all classes are given out, and which
// are full. It has no type where nothing is enforced.
func capacityEnforced(
	k *v1beta1.ClassKind, classes *inventory.Classes, asked bool, room func(string, *inventory.Class) selector.Room,
) (c metav1.Condition) {
	if classes == nil || !k.IsHard() || !classes.Kind.IsHard() {
		return c
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
	c = met(v1beta1.ConditionCapacityEnforced, v1beta1.ReasonEnforced, "no class is given more claims than it holds")
	switch {
	case !asked:
		return failed(c, v1beta1.ReasonNotConfigured,
			"classes may be given more claims than they hold: the API server does not ask classbind about all claims yet")
	case len(closed) > 0:
		return failed(c, v1beta1.ReasonNotCounted, "%s given to no claim until claims are counted, after all writes that are in flight: %s",
			counted(closed, "is", "are"), named(closed))
	case len(full) > 0:
		c.Reason = v1beta1.ReasonFull
		c.Message += fmt.Sprintf("; %s full: %s", counted(full, "is", "are"), named(full))
	}
	return c
}

func labelsHeld(classes *inventory.Classes) metav1.Condition {
	c := met(v1beta1.ConditionLabelsHeld, v1beta1.ReasonLabelsHeld, "no class has too many labels")
	if over := classes.Faulty(inventory.TooManyLabels); len(over) > 0 {
		c = failed(c, v1beta1.ReasonTooManyLabels, "%s offered to no claim, for more than %d labels, or %d bytes of them: %s",
			counted(over, "is", "are"), v1beta1.MaxClassLabels, v1beta1.MaxClassLabelBytes, named(over))
	}
	return c
}

func marksValid(classes *inventory.Classes) metav1.Condition {
	c := met(v1beta1.ConditionMarksValid, v1beta1.ReasonMarksValid, "every mark is true or false")
	if invalid := classes.Faulty(inventory.MalformedMark); len(invalid) > 0 {
		c = failed(c, v1beta1.ReasonMalformedMark, "%s a mark that is neither true nor false: %s; the first: %v",
			counted(invalid, "has", "have"), named(invalid), invalid[0].MarkErr)
	}
	return c
}

// expressionsSucceed reports whether the expressions can be evaluated for all classes, or, while these are not known, whether they compile.
func expressionsSucceed(k *v1beta1.ClassKind, classes *inventory.Classes, mistyped []rules.Invalid) metav1.Condition {
	if classes == nil { // They are not read by expressions that do not compile.
		return expressionsValid(rules.InvalidOfClasses(k), mistyped)
	}
	c := expressionsValid(nil, mistyped)
	if failing := classes.Faulty(inventory.OfferFailed); len(failing) > 0 && len(mistyped) == 0 {
		c = failed(c, v1beta1.ReasonExpressionFailed,
			"%s offered to no claim, because the expression spec.offerWhen fails: %s; the first: %s",
			counted(failing, "is", "are"), named(failing), failing[0].OfferErr.Detail)
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
	return failed(c, reason, "%s", strings.Join(texts, "; "))
}

// untilTyped keeps the condition of the last leader, or of the last revision, until the types are known.
func untilTyped(conditions []metav1.Condition, c metav1.Condition, typesKnown bool) metav1.Condition {
	if before := last(conditions, c.Type); !typesKnown && c.Status == metav1.ConditionTrue && before.Type != "" {
		return before
	}
	return c
}

// counted classes as the subject of a sentence, with its verb for one and for several.
func counted(classes []*inventory.Class, one, several string) string {
	if len(classes) == 1 {
		return "1 class " + one
	}
	return fmt.Sprintf("%d classes %s", len(classes), several)
}

// namedKinds are the claim kinds that a class kind serves.
type namedKinds struct {
	unregistered []string
	// refusing are those that are not offered the classes, and fault is why the first is
	// not; offered is the number of the others that are registered.
	refusing []string
	fault    *inventory.Fault
	offered  int
}

// namedKinds is false while the inventory is about to be updated.
func (s *Writer) namedKinds(ctx context.Context, k *v1beta1.ClassKind) (named namedKinds, known bool, err error) {
	all, _, err := registry.List(ctx, s.Client)
	if err != nil {
		return named, false, err
	}
	served := rules.Served(k, all)
	for _, name := range rules.ServedNames(k, served) {
		i := slices.IndexFunc(served, func(c *v1beta1.ClaimKind) bool { return c.Name == name })
		if i < 0 {
			named.unregistered = append(named.unregistered, name)
			continue
		}
		claimKind := served[i]
		view := s.Snapshot()[name]
		if view == nil || view.Kind.Revision != inventory.RevisionOf(claimKind) {
			return named, false, nil
		}
		if fault := view.FaultOf(k.Name); fault != nil {
			named.refusing, named.fault = append(named.refusing, name), cmp.Or(named.fault, fault)
		} else {
			named.offered++
		}
	}
	return named, true, nil
}

// qualify a Ready condition that is True by the claim kinds that are not offered the
// classes. It stays True if others are: replicas that start wait for these classes.
func (n namedKinds) qualify(ready *metav1.Condition) {
	if len(n.refusing) == 0 {
		return
	}
	ready.Reason, ready.Message = n.fault.Reason, n.fault.Text
	if more := n.refusing[1:]; len(more) > 0 {
		ready.Message += "; nor are they offered to claims of " + selector.List(more)
	}
	if n.offered == 0 {
		ready.Status = metav1.ConditionFalse
	}
}

func (n namedKinds) registered() metav1.Condition {
	c := met(v1beta1.ConditionClaimKindsRegistered, v1beta1.ReasonRegistered, "every claim kind is registered")
	switch {
	case len(n.unregistered) > 0:
		return failed(c, v1beta1.ReasonNotRegistered, "%s", unregistered("spec.claimKinds", "ClaimKind", n.unregistered))
	case n.offered+len(n.refusing) == 0:
		return failed(c, v1beta1.ReasonNoClaimKinds,
			"no claim is offered the classes: name a ClaimKind in spec.claimKinds, or this ClassKind in spec.classes.kinds of one")
	}
	return c
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
		if view == nil || !view.Kind.ConfusesKinds() {
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
