package race

import (
	"cmp"
	"slices"
)

// seat of a default class: a claim kind, and a partition of it.
type seat struct{ claimKind, partition string }

// change is what a watch showed: the seats that a class has from a resourceVersion on.
type change struct {
	version uint64
	class   Class
	seats   []seat
}

// double is the moment at which a class became a second default.
type double struct {
	version uint64
	class   Class
	seat    seat
}

// auditor replays what happened to default classes in the order in which it did. A LIST after a race would miss what was gone by then; the
// watches of several kinds are not in step with each other. But all kinds are in one etcd, so their resourceVersions are one order.
type auditor struct {
	pending  []change
	seats    map[Class][]seat
	defaults map[seat]int
	// been are the classes that were default since somebody last emptied it.
	been map[Class]bool
}

func newAuditor() *auditor {
	return &auditor{seats: map[Class][]seat{}, defaults: map[seat]int{}, been: map[Class]bool{}}
}

// observe a change; those of one kind are in order.
func (a *auditor) observe(c change) { a.pending = append(a.pending, c) }

// until replays all changes up to a resourceVersion, up to which all have been observed. It returns the double defaults.
func (a *auditor) until(version uint64) (all []double) {
	slices.SortStableFunc(a.pending, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	for len(a.pending) > 0 && a.pending[0].version <= version {
		c := a.pending[0]
		a.pending = a.pending[1:]
		before := a.seats[c.class]
		for _, s := range before {
			a.defaults[s]--
		}
		for _, s := range c.seats {
			if a.defaults[s]++; a.defaults[s] > 1 && !slices.Contains(before, s) {
				all = append(all, double{c.version, c.class, s})
			}
		}
		if a.seats[c.class] = c.seats; len(c.seats) == 0 {
			delete(a.seats, c.class)
		} else {
			a.been[c.class] = true
		}
	}
	return all
}
