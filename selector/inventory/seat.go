package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/truncate"
)

// Seat is what one default class is guaranteed for.
type Seat struct {
	// ClaimKind is the name of the claim kind.
	ClaimKind string
	// Namespace of the claims and of the class, if claims are offered only the classes of their own namespace; otherwise empty.
	Namespace string
	// Partition of the claims and of the class, where the ClaimKind has partitions; empty is that of the default for the others.
	Partition string
}

// SeatOf a class that becomes default for claims of this kind. It is false if no claim of this kind is offered the class, or the class
// cannot serve the kind. It fails if the partition of the class cannot be determined, or whether it can serve the kind.
func (d *Demand) SeatOf(c *Class) (seat Seat, offered bool, err error) {
	seat.ClaimKind = d.reader.Name
	if by, _, why := d.Unmet(c); by != nil {
		if why != nil {
			why = fmt.Errorf("the expression %s fails for %q: %w", by.Field, c, why)
		}
		return seat, false, why
	}
	if seat.Partition, err = d.PartitionFor(c); err != nil {
		return seat, false, err
	}
	if c.Namespace != "" && d.Reach.SameAsClaim() {
		seat.Namespace = c.Namespace
		return seat, true, nil
	}
	return seat, d.Reach.Offers("", c.Namespace), nil
}

// PartitionFor which a class can be the default.
func (d *Demand) PartitionFor(c *Class) (string, error) {
	if d.rules.PartitionClass == nil {
		return "", nil
	}
	budget := expression.Budget{Left: v1beta1.MaxClassExpressionCost}
	partition, err := d.rules.PartitionClass.Text(&expression.Input{Class: c.Fields}, &budget)
	if err != nil {
		return "", fmt.Errorf("the expression spec.classes.partition.class of claim kind %q fails for %q: %w", d.reader.Name, c, err)
	}
	return partition, nil
}

// DefaultsBySeat are the classes marked default of each seat, sorted. They are offered to claims, and are not being deleted.
func (o *Offer) DefaultsBySeat() map[Seat][]*Class {
	bySeat := map[Seat][]*Class{}
	for _, s := range o.Classes {
		for _, c := range s.defaults() {
			if seat, offered, _ := o.demand.SeatOf(c); offered && !c.Terminating {
				bySeat[seat] = append(bySeat[seat], c)
			}
		}
	}
	return bySeat
}

// DefaultsOf a seat, sorted.
func (o *Offer) DefaultsOf(seat Seat) []*Class {
	var defaults []*Class
	o.EachDefaultOf(seat.Namespace, seat.Partition, func(c *Class) {
		if !c.Terminating {
			defaults = append(defaults, c)
		}
	})
	slices.SortFunc(defaults, Compare)
	return defaults
}

// EachDefaultOf visits the default classes of the seat of a namespace and partition. It looks
// at no other seat: all of them together may have many.
func (o *Offer) EachDefaultOf(namespace, partition string, visit func(*Class)) {
	of := []term{newTerm(defaultKey, selection.In, partition)}
	for s := range o.sieve.having(o.Classes, of) {
		if namespace == "" || s.Kind.Namespaced && o.demand.Reach.SameAsClaim() { // Otherwise, it has no seat here.
			s.each(of, &o.demand.Reach, namespace, visit)
		}
	}
}

// In says in which namespace and partition a seat is, to follow the name of its claim kind; it is empty for the seat of all.
func (s Seat) In() string {
	var places []string
	if s.Namespace != "" {
		places = append(places, fmt.Sprintf("namespace %q", s.Namespace))
	}
	if s.Partition != "" {
		places = append(places, fmt.Sprintf("partition %q", truncate.String(s.Partition, v1beta1.MaxShownBytes)))
	}
	if len(places) == 0 {
		return ""
	}
	return " in " + strings.Join(places, ", ")
}

// Compare is the order of seats: by claim kind, namespace and partition.
func (s Seat) Compare(o Seat) int {
	return cmp.Or(strings.Compare(s.ClaimKind, o.ClaimKind), strings.Compare(s.Namespace, o.Namespace),
		strings.Compare(s.Partition, o.Partition))
}
