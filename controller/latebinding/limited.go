package latebinding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/classbind/classbind/selector/inventory"
)

// limitedClass has a capacity.
type limitedClass struct {
	*inventory.Class
	// taken includes what is reserved. It is not known until the claims are counted.
	taken int64
	known bool
}

func (c *limitedClass) share() float64 { return float64(c.taken) / float64(max(c.Capacity.Total, 1)) }

// limitedClasses calls a function for each kind with the classes that have a limit, at most so many: those of which the greatest
// share is taken come first, and among equals the first by name.
func limitedClasses(c *Claims, most int, call func([]limitedClass)) {
	called := map[string]bool{}
	for _, view := range c.registration.Inventory.Snapshot() {
		for _, classes := range view.Classes {
			kind := classes.Kind
			if called[kind.Name] || !kind.HasCapacity() || view.Kind.Room == nil {
				continue
			}
			called[kind.Name] = true
			counted := kind.IsHard() || c.countsFor(kind).known()
			var all []limitedClass
			classes.Each(func(class *inventory.Class) {
				if class.Capacity.Total != inventory.Unlimited {
					room := view.Kind.Room("", class)
					all = append(all, limitedClass{class, room.Used + room.Reserved, counted && room.Closed == ""})
				}
			})
			slices.SortFunc(all, func(a, b limitedClass) int {
				return cmp.Or(cmp.Compare(b.share(), a.share()), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
			})
			call(all[:min(len(all), most)])
		}
	}
}
