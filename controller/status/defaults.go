package status

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// setDefaults writes the default classes of all seats into the status.
func setDefaults(status *v1alpha1.ClaimKindStatus, view *selector.View, generation int64) {
	own := map[string][]*selector.Class{}
	for seat, defaults := range view.DefaultsBySeat() {
		own[seat.Namespace] = defaults
	}
	ofAll := own[""]
	delete(own, "")
	status.DefaultClass = ""
	if len(ofAll) > 0 {
		status.DefaultClass = ofAll[0].String()
		if ofAll[0].Cordoned {
			status.DefaultClass += v1alpha1.CordonedSuffix
		}
	}
	if len(ofAll) > 1 {
		status.DefaultClass += fmt.Sprintf(" +%d", len(ofAll)-1)
	}
	status.NamespaceDefaults = int32(len(own)) //nolint:gosec // No API server holds two thousand million classes.
	setCondition(&status.Conditions, singleDefault(view.Kind.Name, ofAll, own), generation)
}

// singleDefault says whether every seat has at most one default. There is one seat for
// all namespaces together, and one for each namespace.
func singleDefault(claimKind string, ofAll []*selector.Class, own map[string][]*selector.Class) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionSingleDefault, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSeveralDefaults,
	}
	var crowded []string // namespaces
	for namespace, defaults := range own {
		if len(defaults) > 1 {
			crowded = append(crowded, namespace)
		}
	}
	slices.Sort(crowded)
	switch {
	case len(ofAll) > 1:
		condition.Message = fmt.Sprintf("a claim without a selector gets any of %d classes; leave the mark on one of %s",
			len(ofAll), named(ofAll))
		if len(crowded) > 0 {
			condition.Message += fmt.Sprintf("; so it is in %d namespaces that have defaults of their own: %s",
				len(crowded), selector.List(crowded))
		}
		return condition
	case len(crowded) > 0:
		first := own[crowded[0]]
		condition.Message = fmt.Sprintf("a claim of namespace %q without a selector gets any of %d classes; leave the mark on one of %s",
			crowded[0], len(first), named(first))
		if len(crowded) > 1 {
			condition.Message += fmt.Sprintf("; so it is in %d namespaces: %s", len(crowded), selector.List(crowded))
		}
		return condition
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonOneDefault
	cordoned, offeredOfAll, offeredOwn := withoutCordoned(ofAll, own)
	condition.Message = whoGetsDefault(offeredOfAll, offeredOwn)
	switch {
	case len(cordoned) == 1:
		condition.Message += fmt.Sprintf("; the default class %s is cordoned", cordoned[0])
	case len(cordoned) > 1:
		condition.Message += fmt.Sprintf("; %d default classes are cordoned: %s; of the first", len(cordoned), named(cordoned))
	case len(ofAll)+len(own) == 0:
		condition.Reason = v1alpha1.ReasonNoDefault
	}
	if len(cordoned) > 0 {
		condition.Reason = v1alpha1.ReasonDefaultCordoned
		condition.Message += ": " + cordoned[0].Uncordon(claimKind)
	}
	return condition
}

// withoutCordoned returns the cordoned defaults, that of all namespaces first, and
// counts the seats whose default is offered.
func withoutCordoned(ofAll []*selector.Class, own map[string][]*selector.Class) (cordoned []*selector.Class, offeredOfAll, offeredOwn int) {
	for _, c := range ofAll {
		if c.Cordoned {
			cordoned = append(cordoned, c)
		} else {
			offeredOfAll++
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(own)) {
		if c := own[namespace][0]; c.Cordoned {
			cordoned = append(cordoned, c)
		} else {
			offeredOwn++
		}
	}
	return cordoned, offeredOfAll, offeredOwn
}

// whoGetsDefault says what becomes of claims without a selector, if so many defaults are
// offered to all namespaces, and to those that have their own.
func whoGetsDefault(ofAll, own int) string {
	switch {
	case own == 0 && ofAll == 0:
		return "a claim without a selector finds no class"
	case own == 0:
		return "a claim without a selector gets the default class"
	case ofAll == 0:
		return fmt.Sprintf("a claim without a selector gets the default class of its own namespace, which %s, or finds no class", have(own))
	}
	return fmt.Sprintf("a claim without a selector gets the default class of its own namespace, which %s, or that of all", have(own))
}

// have is as in "3 namespaces have".
func have(namespaces int) string {
	if namespaces == 1 {
		return "1 namespace has"
	}
	return fmt.Sprintf("%d namespaces have", namespaces)
}

// named lists a few of the classes, and says how many more there are.
func named(classes []*selector.Class) string {
	return selector.ListFunc(classes, (*selector.Class).String)
}
