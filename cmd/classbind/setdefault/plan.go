package setdefault

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// plan says what to write to move a default.
type plan struct {
	target *inventory.Class
	// seats of which the target is the only default afterwards. lose are those that have a default now, and none then.
	seats, lose []inventory.Seat
	// unmark are the classes that must lose their mark before the target gets it.
	unmark []*inventory.Class
}

// done says that there is nothing to write.
func (p *plan) done() bool { return p.target.Default && len(p.unmark) == 0 }

// newPlan makes the target the only default of its seats. The views are of all claim kinds whose default may change.
//
// A mark counts for each claim kind that the kind of its class serves. So the target may also replace the default of other claim kinds, and
// others may lose theirs. The plan is refused unless claimKinds names the former and without names the latter.
func newPlan(views selector.Snapshot, target *inventory.Class, claimKinds, without []string) (*plan, error) {
	p := &plan{target: target}
	if err := p.findSeats(views, claimKinds); err != nil {
		return nil, err
	}
	others := map[inventory.Seat][]*inventory.Class{}
	for _, v := range views {
		for seat, defaults := range v.DefaultsBySeat() {
			others[seat] = slices.DeleteFunc(defaults, func(c *inventory.Class) bool { return nameOf(c) == nameOf(target) })
		}
	}
	for _, seat := range p.seats {
		for _, c := range others[seat] {
			if text := c.Kind.DefaultMark.Expression; text != "" {
				return nil, fmt.Errorf("the default is %[1]s, and has no mark to take: its ClassKind says in spec.default.expression "+
					"which classes are default: %[2]s; change %[1]s so that it is not, then try again", nameOf(c), text)
			}
			if !slices.Contains(p.unmark, c) {
				p.unmark = append(p.unmark, c)
			}
		}
	}
	kept := func(c *inventory.Class) bool { return !slices.Contains(p.unmark, c) }
	var changes []string // that the user did not name
	for _, seat := range slices.SortedFunc(maps.Keys(others), inventory.Seat.Compare) {
		after, agreed := nameOf(target), claimKinds
		if !slices.Contains(p.seats, seat) {
			after, agreed = "no default", without
			if slices.ContainsFunc(others[seat], kept) {
				continue
			}
			p.lose = append(p.lose, seat)
		}
		if len(others[seat]) > 0 && !slices.Contains(agreed, seat.ClaimKind) {
			changes = append(changes, fmt.Sprintf("%s: %s in the place of %s", seatText(seat), after, list(others[seat], nameOf)))
		}
	}
	if len(changes) > 0 {
		return nil, fmt.Errorf("a mark counts for all claim kinds that the kind of its class serves, "+
			"so this would change the default of others, too:\n  %s\nto agree, run: classbind set-default %s%s%s",
			strings.Join(changes, "\n  "), nameOf(target), flags(" --for ", p.seats), flags(" --leave-without-default ", p.lose))
	}
	return p, nil
}

// findSeats of the target in the views. It is an error if claims of one of the claim kinds could not get the class.
func (p *plan) findSeats(views selector.Snapshot, claimKinds []string) error {
	kind := p.target.Kind
	if p.target.Terminating {
		return fmt.Errorf("%s is being deleted: choose another class", nameOf(p.target))
	}
	if text := kind.DefaultMark.Expression; text != "" {
		return fmt.Errorf("%[1]s has no mark to set: its ClassKind says in spec.default.expression which classes are default: %[2]s; "+
			"change the present default, then %[1]s, so that it is true of the latter alone", nameOf(p.target), text)
	}
	for _, name := range slices.Sorted(slices.Values(kind.ClaimKinds)) {
		view := views[name]
		if view == nil { // It is not registered.
			continue
		}
		seat, offered, err := view.Kind.SeatOf(p.target)
		fault := view.FaultOf(kind.Name)
		switch named := slices.Contains(claimKinds, name); {
		case err != nil:
			return fmt.Errorf("cannot tell for which claims of %s %s would be the default: %w", name, nameOf(p.target), err)
		case offered && fault == nil:
			p.seats = append(p.seats, seat)
		case named && fault != nil:
			return fault
		case named:
			return fmt.Errorf("claims of %s are not offered %s: choose another class, or see spec.classes.namespaces and "+
				"spec.classes.fits of the ClaimKind, and spec.fits of the ClassKind %s", name, nameOf(p.target), kind.Name)
		}
	}
	return nil
}

func seatText(s inventory.Seat) string { return s.ClaimKind + s.In() }

// flags name the claim kind of each seat once.
func flags(flag string, seats []inventory.Seat) string {
	var b strings.Builder
	for i, seat := range seats { // They are sorted.
		if i == 0 || seat.ClaimKind != seats[i-1].ClaimKind {
			b.WriteString(flag + seat.ClaimKind)
		}
	}
	return b.String()
}

func list[T any](all []T, text func(T) string) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = text(one)
	}
	return strings.Join(texts, ", ")
}
