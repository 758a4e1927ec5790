package setdefault

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// plan says what to write to move a default.
type plan struct {
	target *storedClass
	// claimKinds are those whose default the target is to become, sorted; seats has the seat of each.
	claimKinds []string
	seats      []inventory.Seat
	// unmark are the classes that must lose their mark before the target gets it.
	unmark []*storedClass
	// mark reports whether the target has no mark yet.
	mark bool
	// gain are other claim kinds that have no default and get one.
	gain []string
	// lose are other seats that have a default and lose it.
	lose []inventory.Seat
}

func (p *plan) done() bool { return !p.mark && len(p.unmark) == 0 }

// newPlan makes the target the only default of its seat for each of the claim kinds; its kind must serve all of them. defaults are the
// other classes that are marked and not being deleted, of every kind related to the target's.
//
// A mark counts for each claim kind that the kind of its class serves. So the target may also replace the default of other claim kinds, and
// others may lose theirs. The plan is refused unless claimKinds names the former and without names the latter.
func newPlan(r *registry, target *storedClass, defaults []*storedClass, claimKinds, without []string) (*plan, error) {
	if target.Terminating {
		return nil, fmt.Errorf("%s is being deleted: choose another class", target)
	}
	if text := target.Kind.DefaultMark.Expression; text != "" {
		return nil, fmt.Errorf("%s has no mark to set: its ClassKind says in spec.default.expression which classes are default: %s; "+
			"change the present default, then %s, so that it is true of the latter alone", target, text, target)
	}
	for _, name := range target.claimKinds() {
		if _, _, err := r.claimKind(name).Demand.SeatOf(target.Class); err != nil {
			return nil, fmt.Errorf("cannot determine for which claims of %s %s would be the default: %w", name, target, err)
		}
	}
	if err := r.checkOffered(target, claimKinds); err != nil {
		return nil, err
	}
	p := &plan{target: target, mark: !target.Default, claimKinds: slices.Clone(claimKinds)}
	if p.mark {
		for _, name := range target.claimKinds() {
			seat, offered := r.seat(name, target)
			switch {
			case slices.Contains(claimKinds, name) || !offered:
			case len(r.takers(defaults, seat)) > 0:
				p.claimKinds = append(p.claimKinds, name)
			case r.claimKinds[name] != nil:
				p.gain = append(p.gain, name)
			}
		}
		slices.Sort(p.claimKinds)
	}
	for _, name := range p.claimKinds {
		seat, _ := r.seat(name, target)
		p.seats = append(p.seats, seat)
	}
	p.unmark = r.takers(defaults, p.seats...)
	kept := slices.DeleteFunc(slices.Clone(defaults), func(d *storedClass) bool { return contains(p.unmark, d) })
	if err := p.findLosers(r, kept); err != nil {
		return nil, err
	}
	slices.SortFunc(p.lose, inventory.Seat.Compare)
	p.lose = slices.Compact(p.lose)
	for _, name := range without {
		loses := func(s inventory.Seat) bool { return s.ClaimKind == name }
		if slices.Contains(target.Kind.ClaimKinds, name) && !slices.ContainsFunc(p.lose, loses) {
			return nil, fmt.Errorf("--leave-without-default=%q: %s serves it, so it is not left without: name it with --for",
				name, target.Kind.Name)
		}
	}
	return p, p.checkAgreement(r, defaults, claimKinds, without)
}

// findLosers finds the seats that are left without a default: none of the classes that are kept takes them.
func (p *plan) findLosers(r *registry, kept []*storedClass) error {
	for _, d := range p.unmark {
		if text := d.Kind.DefaultMark.Expression; text != "" {
			return fmt.Errorf("the default is %s, and has no mark to take: its ClassKind says in spec.default.expression "+
				"which classes are default: %s; change %s so that it is not, then try again", d, text, d)
		}
		for _, name := range d.claimKinds() {
			seat, offered := r.seat(name, d)
			if r.claimKinds[name] != nil && offered && !r.takes(p.target, seat) && len(r.takers(kept, seat)) == 0 {
				p.lose = append(p.lose, seat)
			}
		}
	}
	return nil
}

// checkOffered returns an error if claims of one of these kinds could not get the class.
func (r *registry) checkOffered(target *storedClass, claimKinds []string) error {
	for _, name := range claimKinds {
		if fault := r.faultOf(target.Kind, name); fault != nil {
			return fault
		}
		if _, offered := r.seat(name, target); offered {
			continue
		}
		if r.claimKind(name).Demand.Serves(target.Class) {
			return fmt.Errorf("claims of %s are offered no class of namespace %q: "+
				"add it to spec.classes.namespaces.names of the ClaimKind, or choose another class", name, target.Namespace)
		}
		return fmt.Errorf("claims of %s get no class like %s: choose another class, "+
			"or see spec.classes.fits of the ClaimKind and spec.fits of the ClassKind %s", name, target, target.Kind.Name)
	}
	return nil
}

// checkAgreement returns an error that lists the changes that the user did not name, and the command that agrees to them.
func (p *plan) checkAgreement(r *registry, defaults []*storedClass, claimKinds, without []string) error {
	var changes []string
	change := func(seats []inventory.Seat, named []string, after string) {
		for _, seat := range seats {
			if slices.Contains(named, seat.ClaimKind) {
				continue
			}
			text := fmt.Sprintf("%s: %s in the place of %s", seatText(seat), after, list(r.takers(defaults, seat)))
			if r.claimKinds[seat.ClaimKind] == nil {
				text += " (it is not registered: create its ClaimKind first)"
			}
			changes = append(changes, text)
		}
	}
	change(p.seats, claimKinds, p.target.String())
	change(p.lose, without, "no default")
	if len(changes) == 0 {
		return nil
	}
	command := []string{"classbind set-default", p.target.Arguments()}
	for _, name := range p.claimKinds {
		command = append(command, "--for", name)
	}
	for i, seat := range p.lose {
		if i == 0 || seat.ClaimKind != p.lose[i-1].ClaimKind {
			command = append(command, "--leave-without-default", seat.ClaimKind)
		}
	}
	return fmt.Errorf("a mark counts for all claim kinds that the kind of its class serves, "+
		"so this would change the default of others, too:\n  %s\nto agree, run: %s",
		strings.Join(changes, "\n  "), strings.Join(command, " "))
}

func (r *registry) seat(claimKind string, c *storedClass) (inventory.Seat, bool) {
	seat, offered, _ := r.claimKind(claimKind).Demand.SeatOf(c.Class) // A class of no known seat is the default of no claims.
	return seat, offered && r.faultOf(c.Kind, claimKind) == nil
}

// claimKind of this name. One that is not registered counts as registered with the default spec.
func (r *registry) claimKind(name string) *selector.ClaimKind {
	if k := r.claimKinds[name]; k != nil {
		return k
	}
	return selector.NewClaimKind(&v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// faultOf is why claims of a kind are offered no class of a class kind that serves it, nil if they are.
func (r *registry) faultOf(kind *inventory.ClassKind, claimKind string) *inventory.Fault {
	k := r.claimKinds[claimKind]
	if k == nil {
		return nil
	}
	var serving []*inventory.Classes
	for _, other := range r.classKinds {
		if other.Err == nil && slices.Contains(other.ClaimKinds, claimKind) {
			serving = append(serving, inventory.NewClasses(other.ClassKind, nil))
		}
	}
	return selector.NewView(k, serving).FaultOf(kind.Name)
}

// takes reports whether a class, if marked, is a default of the seat.
func (r *registry) takes(c *storedClass, seat inventory.Seat) bool {
	own, offered := r.seat(seat.ClaimKind, c)
	return slices.Contains(c.Kind.ClaimKinds, seat.ClaimKind) && offered && own == seat
}

// takers returns the marked classes that are defaults of one of the seats.
func (r *registry) takers(classes []*storedClass, seats ...inventory.Seat) []*storedClass {
	return slices.DeleteFunc(slices.Clone(classes), func(c *storedClass) bool {
		return !slices.ContainsFunc(seats, func(s inventory.Seat) bool { return r.takes(c, s) })
	})
}

func seatText(s inventory.Seat) string { return s.ClaimKind + s.In() }

func contains(classes []*storedClass, c *storedClass) bool {
	return slices.ContainsFunc(classes, func(o *storedClass) bool { return o.String() == c.String() })
}
