package latebinding

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/inventory"
)

// kindCounts count the claims that have a class of one kind. A claim counts by the reference with which it is stored, so the claims of a
// class that is gone count again when a class of its name is created.
type kindCounts struct {
	// watches of the claim kinds that the class kind serves, sorted by name, without those whose claims are not known.
	watches []*claimWatch
	// missing is why claims may not be counted, nil if all are. See NotYet.
	missing error
}

// known reports whether any claims are counted.
func (n kindCounts) known() bool { return len(n.watches) > 0 }

// of returns how many claims have a class.
func (n kindCounts) of(c *inventory.Class) (claims int64) {
	for _, w := range n.watches {
		claims += w.kind.BoundClaims(c)
	}
	return claims
}

// countsFor returns the counts for a class kind.
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

// eachClassKind calls a function with the classes of each kind whose claims are counted.
func (c *Claims) eachClassKind(call func(*inventory.Classes, kindCounts)) {
	called := map[string]bool{}
	for _, view := range c.registration.Inventory.Snapshot() {
		for _, classes := range view.Classes {
			if called[classes.Kind.Name] {
				continue
			}
			called[classes.Kind.Name] = true
			if n := c.countsFor(classes.Kind); n.known() {
				call(classes, n)
			}
		}
	}
}

type countedClass struct {
	claims int64
	class  *inventory.Class
}

// top returns the classes with the most claims, at most so many, and how many claims all
// others have. Among classes with equal claims, the first by name come first.
func (n kindCounts) top(classes *inventory.Classes, most int) (top []countedClass, others int64) {
	top = make([]countedClass, 0, most+1)
	classes.Each(func(c *inventory.Class) {
		next := countedClass{n.of(c), c}
		i, _ := slices.BinarySearchFunc(top, next, func(a, b countedClass) int {
			return cmp.Or(cmp.Compare(b.claims, a.claims),
				strings.Compare(a.class.Namespace, b.class.Namespace), strings.Compare(a.class.Name, b.class.Name))
		})
		if i < most {
			top = slices.Insert(top, i, next)
		} else {
			others += next.claims
		}
		if len(top) > most {
			others += top[most].claims
			top = top[:most]
		}
	})
	return top, others
}
