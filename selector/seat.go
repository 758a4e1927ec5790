package selector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/truncate"
)

// Seat is what one default class is guaranteed for.
type Seat struct {
	// ClaimKind is the name of the claim kind.
	ClaimKind string
	// Namespace of the claims and of the class, if claims are offered only the
	// classes of their own namespace; otherwise empty.
	Namespace string
	// Partition of the claims and of the class, where the ClaimKind has partitions; empty is
	// that of the default for the others.
	Partition string
}

// SeatOf a class that becomes default for claims of this kind. It is false if no
// claim of this kind is offered the class, or the class cannot serve the kind. It fails if
// the partition of the class cannot be determined, or whether it can serve the kind.
func (k *ClaimKind) SeatOf(c *Class) (seat Seat, offered bool, err error) {
	seat.ClaimKind = k.Name
	if by, _, why := k.serves(c); by != nil {
		if why != nil {
			why = fmt.Errorf("the expression %s fails for %q: %w", by.Field, c, why)
		}
		return seat, false, why
	}
	if seat.Partition, err = k.partitionFor(c); err != nil {
		return seat, false, err
	}
	if c.Namespace != "" && k.Own() {
		seat.Namespace = c.Namespace
		return seat, true, nil
	}
	return seat, k.Offers("", c.Namespace), nil
}

// partitionFor which a class can be the default.
func (k *ClaimKind) partitionFor(c *Class) (string, error) {
	if k.PartitionClass == nil {
		return "", nil
	}
	budget := expression.Budget{Left: v1beta1.MaxClassExpressionCost}
	partition, err := k.PartitionClass.Text(&expression.Input{Class: c.Fields}, &budget)
	if err != nil {
		return "", fmt.Errorf("the expression spec.classes.partition.class of claim kind %q fails for %q: %w", k.Name, c, err)
	}
	return partition, nil
}

// DefaultsBySeat are the classes marked default of each seat, sorted. They are offered to
// claims, and are not being deleted.
func (v *View) DefaultsBySeat() map[Seat][]*Class {
	bySeat := map[Seat][]*Class{}
	for _, s := range v.Classes {
		for _, c := range s.Defaults() {
			if seat, offered, _ := v.Kind.SeatOf(c); offered && !c.Terminating {
				bySeat[seat] = append(bySeat[seat], c)
			}
		}
	}
	return bySeat
}

// DefaultsOf a seat, sorted.
func (v *View) DefaultsOf(seat Seat) []*Class {
	var defaults []*Class
	v.eachDefaultOf(seat.Namespace, seat.Partition, func(c *Class) {
		if !c.Terminating {
			defaults = append(defaults, c)
		}
	})
	slices.SortFunc(defaults, compare)
	return defaults
}

// eachDefault visits the default classes of the claim's own namespace and partition. If none
// of them is left after dropping, it also visits those of the next seat: for partitions
// without a default, then for all namespaces, in both ways.
func (v *offer) eachDefault(claim subject, visit func(*Class)) {
	partition := ""
	if claim.facts != nil {
		partition = claim.facts.partition
	}
	left := false
	each := func(namespace, partition string) {
		v.eachDefaultOf(namespace, partition, func(c *Class) {
			if !left {
				i, _ := v.Kind.firstDrop(claim, c)
				left = i < 0
			}
			visit(c)
		})
	}
	if claim.Namespace != "" && v.Kind.Own() {
		each(claim.Namespace, partition)
		if !left && partition != "" {
			each(claim.Namespace, "")
		}
	}
	if !left {
		each("", partition)
	}
	if !left && partition != "" {
		each("", "")
	}
}

// eachDefaultOf visits the default classes of the seat of a namespace and partition. It looks
// at no other seat: all of them together may have many.
func (v *offer) eachDefaultOf(namespace, partition string, visit func(*Class)) {
	if v.Kind.PartitionClass == nil {
		v.eachDefaultIn(namespace, visit)
		return
	}
	if v.index == nil {
		v.eachDefaultIn(namespace, func(c *Class) {
			if of, err := v.Kind.partitionFor(c); err == nil && of == partition {
				visit(c)
			}
		})
		return
	}
	v.index.eachOf(partitionKey, text(partition), func(c *Class) {
		if v.Kind.Own() && c.Namespace != namespace || !v.Kind.Offers(namespace, c.Namespace) {
			return
		}
		visit(c)
	})
}

// eachDefaultIn visits the default classes of the seats of a namespace, or of those that have
// none.
func (v *offer) eachDefaultIn(namespace string, visit func(*Class)) {
	visitKey := func(c *Class, _ struct{}) { visit(c) }
	for _, s := range v.Classes {
		switch {
		case s.Kind.Namespaced && v.Kind.Own():
			s.in(namespace).defaults.Each(visitKey)
		case namespace != "": // It has no seat here.
		case s.Kind.Namespaced && v.Kind.From == v1beta1.FromNames:
			for _, name := range v.Kind.Names {
				s.in(name).defaults.Each(visitKey)
			}
		default:
			s.defaults.Each(visitKey)
		}
	}
}

// In says in which namespace and partition a seat is, to follow the name of its claim
// kind; it is empty for the seat of all.
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
