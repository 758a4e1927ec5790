package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// setDefaults writes the default classes of all seats into the status, and returns whether each seat has one at most.
func setDefaults(k *v1beta1.ClaimKind, view *selector.View) metav1.Condition {
	const most = 16 // in the schema
	of := view.DefaultsBySeat()
	ofAll, counts := of[inventory.Seat{ClaimKind: k.Name}], count{}
	k.Status.Defaults, k.Status.DefaultCount = nil, int32(len(ofAll)) //nolint:gosec // No API server holds two thousand million classes.
	for _, c := range ofAll[:min(len(ofAll), most)] {
		k.Status.Defaults = append(k.Status.Defaults, v1beta1.DefaultClass{
			Kind: c.Kind.GroupVersionKind.Kind, Namespace: c.Namespace, Name: c.Name, Cordoned: c.Cordoned,
		})
	}
	for seat := range of {
		counts.add(seat)
	}
	k.Status.NamespaceDefaults, k.Status.PartitionDefaults = counts.namespaces, counts.partitions
	return singleDefault(k.Name, of)
}

// count of the seats that have a default: that of all namespaces and partitions together, and those that have one of their own.
type count struct{ all, namespaces, partitions int32 }

func (c *count) add(s inventory.Seat) {
	switch {
	case s.Partition != "":
		c.partitions++
	case s.Namespace != "":
		c.namespaces++
	default:
		c.all++
	}
}

func singleDefault(claimKind string, of map[inventory.Seat][]*inventory.Class) metav1.Condition {
	seats := slices.SortedFunc(maps.Keys(of), inventory.Seat.Compare) // That of all comes first.
	crowded := slices.DeleteFunc(slices.Clone(seats), func(s inventory.Seat) bool { return len(of[s]) < 2 })
	if len(crowded) > 0 {
		first := of[crowded[0]]
		message := fmt.Sprintf("a claim%s without a selector gets one of %d classes; leave the mark on one of %s",
			crowded[0].In(), len(first), named(first))
		also, which := crowded, ""
		if crowded[0].In() == "" {
			also, which = crowded[1:], " that have defaults of their own"
		}
		if len(crowded) > 1 {
			places := selector.ListFunc(also, func(s inventory.Seat) string { return "(" + strings.TrimPrefix(s.In(), " in ") + ")" })
			message += fmt.Sprintf("; so it is in %d places%s: %s", len(also), which, places)
		}
		return failed(metav1.Condition{Type: v1beta1.ConditionSingleDefault}, v1beta1.ReasonSeveralDefaults, "%s", message)
	}
	var cordoned []*inventory.Class
	offered := count{}
	for _, seat := range seats {
		if c := of[seat][0]; c.Cordoned {
			cordoned = append(cordoned, c)
		} else {
			offered.add(seat)
		}
	}
	condition := met(v1beta1.ConditionSingleDefault, v1beta1.ReasonOneDefault, whoGetsDefault(offered))
	switch {
	case len(cordoned) == 1:
		condition.Message += fmt.Sprintf("; the default class %s is cordoned", cordoned[0])
	case len(cordoned) > 1:
		condition.Message += fmt.Sprintf("; %d default classes are cordoned: %s; of the first", len(cordoned), named(cordoned))
	case len(seats) == 0:
		condition.Reason = v1beta1.ReasonNoDefault
	}
	if len(cordoned) > 0 {
		condition.Reason = v1beta1.ReasonDefaultCordoned
		condition.Message += ": " + cordoned[0].Uncordon(claimKind)
	}
	return condition
}

// whoGetsDefault says what becomes of claims without a selector, if so many defaults are offered.
func whoGetsDefault(offered count) string {
	var places []string
	if offered.namespaces > 0 {
		places = append(places, "its own namespace, which "+have(offered.namespaces, "namespace"))
	}
	if offered.partitions > 0 {
		places = append(places, "its partition, which "+have(offered.partitions, "partition"))
	}
	switch {
	case len(places) == 0 && offered.all == 0:
		return "a claim without a selector finds no class"
	case len(places) == 0:
		return "a claim without a selector gets the default class"
	}
	text := "a claim without a selector gets the default class of " + strings.Join(places, ", or of ")
	if offered.all == 0 {
		return text + ", or finds no class"
	}
	return text + ", or that of all"
}

func have(n int32, what string) string {
	if n == 1 {
		return "1 " + what + " has"
	}
	return fmt.Sprintf("%d %ss have", n, what)
}

// named lists a few of the classes, and says how many more there are.
func named(classes []*inventory.Class) string {
	return selector.ListFunc(classes, (*inventory.Class).String)
}
