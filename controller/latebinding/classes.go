package latebinding

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// kindCounts count the claims that have a class of one kind. A claim counts by the reference with which it is stored, so the claims of a
// class that is gone count again when a class of its name is created.
type kindCounts struct {
	watches []*claimWatch // of the claim kinds that the class kind serves, sorted by name, without those whose claims are not known
	missing error         // why claims may not be counted, nil if all are: see NotYet
}

func (n kindCounts) known() bool { return len(n.watches) > 0 }

func (n kindCounts) of(c *inventory.Class) (claims int64) {
	for _, w := range n.watches {
		claims += w.kind.BoundClaims(c)
	}
	return claims
}

func (c *Claims) countsFor(kind *inventory.ClassKind) kindCounts {
	snapshot, watches := c.registration.Inventory.Snapshot(), c.watches()
	n := kindCounts{}
	if snapshot == nil {
		n.missing = errNotWatched
	}
	for _, name := range slices.Sorted(slices.Values(kind.ClaimKinds)) {
		view := snapshot[name]
		// A claim kind that is not watched for the class kind yet is about to be compiled again.
		if view == nil || view.Conflict != nil || !view.Kind.Watched && !kind.CountsClaims || view.FaultOf(kind.Name) != nil {
			continue
		}
		why := c.Problem(name)
		if w := watches[name]; w != nil && w.published.Load().synced {
			n.watches = append(n.watches, w)
		} else {
			why = cmp.Or(why, errNoAnswer)
		}
		if why != nil && !errors.Is(why, cluster.ErrNotInstalled) && (n.missing == nil || NotYet(why)) {
			n.missing = fmt.Errorf("the claims of %q are not counted: %w", name, why)
		}
	}
	return n
}

// OfClass returns how many claims have a class, by claim kind, without those that have
// none. missing is why there may be more, nil if all are counted.
func (c *Claims) OfClass(class *inventory.Class) (claims map[string]int64, missing error) {
	n := c.countsFor(class.Kind)
	claims = map[string]int64{}
	for _, w := range n.watches {
		if bound := w.kind.BoundClaims(class); bound > 0 {
			claims[w.kind.Name] = bound
		}
	}
	return claims, n.missing
}

// OfClasses returns how many claims have one of these classes. known is false if no claims
// of the kinds that they serve are watched, and complete false while they have not been listed yet.
func (c *Claims) OfClasses(classes *inventory.Classes) (claims int64, known, complete bool) {
	n := c.countsFor(classes.Kind)
	if n.known() {
		classes.Each(func(c *inventory.Class) { claims += n.of(c) })
	}
	return claims, n.known(), !NotYet(n.missing)
}

// eachClassKind calls a function with the classes of each kind, and with the view of each claim kind that it serves, until it returns true.
func (c *Claims) eachClassKind(call func(*selector.View, *inventory.Classes) (done bool)) {
	done := map[string]bool{}
	for _, view := range c.registration.Inventory.Snapshot() {
		for _, classes := range view.Classes {
			name := classes.Kind.Name
			done[name] = done[name] || call(view, classes)
		}
	}
}

type countedClass struct {
	*inventory.Class
	claims int64
}

// top returns the classes with the most claims, at most so many, and how many claims all others have. Among classes with equal claims, the
// first by name come first.
func (n kindCounts) top(classes *inventory.Classes, most int) (top []countedClass, others int64) {
	classes.Each(func(c *inventory.Class) { top = append(top, countedClass{c, n.of(c)}) })
	slices.SortFunc(top, func(a, b countedClass) int {
		return cmp.Or(cmp.Compare(b.claims, a.claims), inventory.Compare(a.Class, b.Class))
	})
	most = min(len(top), most)
	for _, c := range top[most:] {
		others += c.claims
	}
	return top[:most], others
}

// limitedClass has a capacity.
type limitedClass struct {
	*inventory.Class
	taken int64 // with what is reserved
	known bool  // It is not until the claims are counted.
}

func (c *limitedClass) share() float64 { return float64(c.taken) / float64(max(c.Capacity.Total, 1)) }

// limitedClasses calls a function for each kind with the classes that have a limit, at most so many: those of which the greatest share is
// taken come first, and among equals the first by name.
func (c *Claims) limitedClasses(most int, call func([]limitedClass)) {
	c.eachClassKind(func(view *selector.View, classes *inventory.Classes) bool {
		kind := classes.Kind
		if !kind.HasCapacity() || view.Kind.Room == nil {
			return false
		}
		counted := kind.IsHard() || c.countsFor(kind).known()
		var all []limitedClass
		classes.Each(func(class *inventory.Class) {
			if class.Capacity.Total != inventory.Unlimited {
				room := view.Kind.Room("", class)
				all = append(all, limitedClass{class, room.Used + room.Reserved, counted && room.Closed == ""})
			}
		})
		slices.SortFunc(all, func(a, b limitedClass) int {
			return cmp.Or(cmp.Compare(b.share(), a.share()), inventory.Compare(a.Class, b.Class))
		})
		call(all[:min(len(all), most)])
		return true
	})
}
