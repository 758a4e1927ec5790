package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// setDefaults writes the default classes of all seats into the status.
func setDefaults(status *v1alpha1.ClaimKindStatus, view *selector.View, generation int64) {
	of := view.DefaultsBySeat()
	all := selector.Seat{ClaimKind: view.Kind.Name}
	ofAll := of[all]
	delete(of, all)
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
	own := count{}
	for seat := range of {
		own.add(seat)
	}
	status.NamespaceDefaults, status.PartitionDefaults = int32(own.namespaces), int32(own.partitions) //nolint:gosec // No API server holds two thousand million classes.
	setCondition(&status.Conditions, singleDefault(view.Kind.Name, ofAll, of), generation)
}

// count of the seats that have a default of their own.
type count struct{ namespaces, partitions int }

func (c *count) add(s selector.Seat) {
	if s.Partition != "" {
		c.partitions++
	} else {
		c.namespaces++
	}
}

// singleDefault reports whether every seat has at most one default: that of all namespaces and
// partitions together, and those of their own.
func singleDefault(claimKind string, ofAll []*selector.Class, own map[selector.Seat][]*selector.Class) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionSingleDefault, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSeveralDefaults,
	}
	var crowded []selector.Seat
	for seat, defaults := range own {
		if len(defaults) > 1 {
			crowded = append(crowded, seat)
		}
	}
	slices.SortFunc(crowded, selector.Seat.Compare)
	in := func() string {
		return selector.ListFunc(crowded, func(s selector.Seat) string { return "(" + strings.TrimPrefix(s.In(), " in ") + ")" })
	}
	switch {
	case len(ofAll) > 1:
		condition.Message = fmt.Sprintf("a claim without a selector gets one of %d classes; leave the mark on one of %s",
			len(ofAll), named(ofAll))
		if len(crowded) > 0 {
			condition.Message += fmt.Sprintf("; so it is in %d places that have defaults of their own: %s", len(crowded), in())
		}
		return condition
	case len(crowded) > 0:
		first := own[crowded[0]]
		condition.Message = fmt.Sprintf("a claim%s without a selector gets one of %d classes; leave the mark on one of %s",
			crowded[0].In(), len(first), named(first))
		if len(crowded) > 1 {
			condition.Message += fmt.Sprintf("; so it is in %d places: %s", len(crowded), in())
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

// withoutCordoned returns the cordoned defaults, that of all first, and counts the seats
// whose default is offered.
func withoutCordoned(
	ofAll []*selector.Class, own map[selector.Seat][]*selector.Class,
) (cordoned []*selector.Class, offeredOfAll int, offeredOwn count) {
	for _, c := range ofAll {
		if c.Cordoned {
			cordoned = append(cordoned, c)
		} else {
			offeredOfAll++
		}
	}
	for _, seat := range slices.SortedFunc(maps.Keys(own), selector.Seat.Compare) {
		if c := own[seat][0]; c.Cordoned {
			cordoned = append(cordoned, c)
		} else {
			offeredOwn.add(seat)
		}
	}
	return cordoned, offeredOfAll, offeredOwn
}

// whoGetsDefault says what becomes of claims without a selector, if so many defaults are
// offered to all, and to the namespaces and partitions that have their own.
func whoGetsDefault(ofAll int, own count) string {
	var places []string
	if own.namespaces > 0 {
		places = append(places, "its own namespace, which "+have(own.namespaces, "namespace"))
	}
	if own.partitions > 0 {
		places = append(places, "its partition, which "+have(own.partitions, "partition"))
	}
	switch {
	case len(places) == 0 && ofAll == 0:
		return "a claim without a selector finds no class"
	case len(places) == 0:
		return "a claim without a selector gets the default class"
	}
	text := "a claim without a selector gets the default class of " + strings.Join(places, ", or of ")
	if ofAll == 0 {
		return text + ", or finds no class"
	}
	return text + ", or that of all"
}

// have is as in "3 namespaces have".
func have(n int, what string) string {
	if n == 1 {
		return "1 " + what + " has"
	}
	return fmt.Sprintf("%d %ss have", n, what)
}

// named lists a few of the classes, and says how many more there are.
func named(classes []*selector.Class) string {
	return selector.ListFunc(classes, (*selector.Class).String)
}
