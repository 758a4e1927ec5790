package setdefault

import (
	"fmt"
	"slices"
	"strings"
)

// plan says what has to be written to move a default.
type plan struct {
	target *storedClass
	// claimKinds whose default the target is to be, in the order of their names.
	claimKinds []string
	// unmark are the classes that have to lose their mark before the target gets it.
	unmark []*storedClass
	// mark says that the target has no mark yet.
	mark bool
	// gain are other claim kinds that had no default, and get one.
	gain []string
	// lose are other claim kinds that had a default, and have none any more.
	lose []string
}

// done says that there is nothing to write.
func (p *plan) done() bool { return !p.mark && len(p.unmark) == 0 }

// newPlan makes the target the only default of the claim kinds, all of which its
// kind serves. The defaults are the other classes that are marked and not being
// deleted, of every kind related to the target's.
//
// A mark counts for each claim kind that the kind of its class serves. So there
// may be others of which the target would be a second default, or which lose
// theirs: the plan is refused unless it was told of the first by claimKinds, and
// of the second by without.
func newPlan(r *registry, target *storedClass, defaults []*storedClass, claimKinds, without []string) (*plan, error) {
	if target.Terminating {
		return nil, fmt.Errorf("%s is being deleted: choose another class", target)
	}
	for _, name := range without {
		if target.serves(name) {
			return nil, fmt.Errorf("--leave-without-default=%q: %s serves it, so it is not left without: name it with --for", name, target.Kind.Name)
		}
	}
	p := &plan{target: target, mark: !target.Default, claimKinds: slices.Clone(claimKinds)}
	if p.mark {
		for _, name := range target.claimKinds() {
			switch taken := len(serving(defaults, name)) > 0; {
			case slices.Contains(claimKinds, name):
			case taken:
				p.claimKinds = append(p.claimKinds, name)
			case r.claimKinds[name] != nil:
				p.gain = append(p.gain, name)
			}
		}
		slices.Sort(p.claimKinds)
	}
	var kept []*storedClass
	for _, d := range defaults {
		if slices.ContainsFunc(p.claimKinds, d.serves) {
			p.unmark = append(p.unmark, d)
		} else {
			kept = append(kept, d)
		}
	}
	for _, d := range p.unmark {
		for _, name := range d.claimKinds() {
			if r.claimKinds[name] != nil && !target.serves(name) && len(serving(kept, name)) == 0 {
				p.lose = append(p.lose, name)
			}
		}
	}
	slices.Sort(p.lose)
	p.lose = slices.Compact(p.lose)
	return p, p.agreed(r, defaults, claimKinds, without)
}

// agreed says of which claim kinds the plan was not told, and how to tell it.
func (p *plan) agreed(r *registry, defaults []*storedClass, claimKinds, without []string) error {
	var changes []string
	change := func(claimKind, after string) {
		text := fmt.Sprintf("%s: %s in the place of %s", claimKind, after, list(serving(defaults, claimKind)))
		if r.claimKinds[claimKind] == nil {
			text += " (it is not registered: create its ClaimKind first)"
		}
		changes = append(changes, text)
	}
	for _, name := range p.claimKinds {
		if !slices.Contains(claimKinds, name) {
			change(name, p.target.String())
		}
	}
	for _, name := range p.lose {
		if !slices.Contains(without, name) {
			change(name, "no default")
		}
	}
	if len(changes) == 0 {
		return nil
	}
	command := []string{"classbind set-default", p.target.String()}
	for _, name := range p.claimKinds {
		command = append(command, "--for", name)
	}
	for _, name := range p.lose {
		command = append(command, "--leave-without-default", name)
	}
	return fmt.Errorf("a mark counts for all claim kinds that the kind of its class serves, so this would change the default of others, too:\n  %s\nto agree, run: %s",
		strings.Join(changes, "\n  "), strings.Join(command, " "))
}

// serving are the classes that serve the claim kind.
func serving(classes []*storedClass, claimKind string) []*storedClass {
	return slices.DeleteFunc(slices.Clone(classes), func(c *storedClass) bool { return !c.serves(claimKind) })
}

func contains(classes []*storedClass, c *storedClass) bool {
	return slices.ContainsFunc(classes, func(o *storedClass) bool { return o.String() == c.String() })
}

func list(classes []*storedClass) string {
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = c.String()
	}
	return strings.Join(names, ", ")
}
