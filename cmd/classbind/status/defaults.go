package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// defaultFault is wrong with the default class of some claim kinds. The texts have %s for
// these. Where is empty if it is at them, and not at a class.
type defaultFault struct{ where, what, do string }

// checkDefaults says which claim kinds have several default classes, or one that claims
// cannot get.
func checkDefaults(_ context.Context, i *installation, s *Section) {
	with := 0
	i.unreadClasses(s)
	faults := map[defaultFault][]string{} // the claim kinds of each
	var undefaulted []string              // claim kinds without one
	for n := range i.claimKinds {
		k := &i.claimKinds[n]
		v, complete := i.view(k)
		bySeat := v.DefaultsBySeat()
		if len(bySeat) > 0 {
			with++
		} else if all, _ := i.classesOf(k); complete && !slices.ContainsFunc(all, i.leavesOut) {
			undefaulted = append(undefaulted, k.Name)
		}
		for seat, defaults := range bySeat {
			for _, f := range defaultFaults(v.Kind, seat, defaults) {
				if !slices.Contains(faults[f], k.Name) { // As the class of another seat.
					faults[f] = append(faults[f], k.Name)
				}
			}
		}
	}
	if len(undefaulted) > 0 {
		s.note("claims of %s without a selector get no class: none is marked default", selector.List(undefaulted))
	}
	for f, claimKinds := range faults {
		where := f.where
		if where == "" {
			where = "claimkind/" + strings.Join(claimKinds, ", claimkind/")
		}
		s.found(where, fmt.Sprintf(f.do, strings.Join(claimKinds, ",")), f.what, strings.Join(claimKinds, ", "))
	}
	slices.SortFunc(s.Findings, func(a, b Finding) int { return strings.Compare(a.Where+a.What, b.Where+b.What) })
	unread := slices.Sorted(maps.Keys(i.classesErr))
	s.Summary = without(unread, len(i.classes), fmt.Sprintf("%d of %d claim kinds have one", with, len(i.claimKinds)))
}

// defaultFaults are those of the default classes of a seat.
func defaultFaults(k *selector.ClaimKind, seat selector.Seat, defaults []*selector.Class) (faults []defaultFault) {
	offered := slices.DeleteFunc(slices.Clone(defaults), func(c *selector.Class) bool { return c.Cordoned })
	if len(offered) > 1 {
		names := make([]string, len(offered))
		for n, c := range offered {
			names[n] = resourceName(c)
		}
		faults = append(faults, defaultFault{
			what: fmt.Sprintf("claims of %%s without a selector get any of %d default classes%s: %s",
				len(offered), strings.ReplaceAll(seat.In(), "%", "%%"), selector.List(names)),
			do: setDefault(names[0]),
		})
	}
	for _, c := range defaults {
		switch {
		case c.Cordoned && len(offered) > 0:
			faults = append(faults, defaultFault{
				where: resourceName(c), do: setDefault(resourceName(offered[0])),
				what: "it is a default of %s besides " + resourceName(offered[0]) + ", and cordoned, so no claim gets it",
			})
		case c.Cordoned:
			faults = append(faults, defaultFault{
				where: resourceName(c), what: "it is the default of %s and cordoned, so no claim gets it",
				do: fmt.Sprintf("kubectl annotate %s %s-, or make another class the default: %s",
					kubectlName(c), v1alpha1.CordonedAnnotation, setDefault("KIND/NAME")),
			})
		}
		if c.Weight == 0 && k.Strategy.Weighted {
			faults = append(faults, defaultFault{
				where: resourceName(c), do: "give it a weight, or make another class the default: " + setDefault("KIND/NAME"),
				what: "it is the default of %s and has weight 0, so no claim gets it by the strategy " + string(k.Strategy.Name),
			})
		}
	}
	return faults
}

// setDefault is the command, with %s for the claim kinds.
func setDefault(class string) string { return "classbind set-default " + class + " --for %s" }

// unreadClasses says of which kinds the classes are not known.
func (i *installation) unreadClasses(s *Section) {
	for _, name := range slices.Sorted(maps.Keys(i.classesErr)) {
		s.unread("the classes of "+name, i.classesErr[name])
	}
}

// checkWeights says which classes have a weight that cannot be read.
func checkWeights(_ context.Context, i *installation, s *Section) {
	i.unreadClasses(s)
	const do = "write an integer from 0 to 1000000"
	all := 0
	for _, name := range slices.Sorted(maps.Keys(i.classes)) {
		classes := i.classes[name]
		all += classes.Len()
		malformed := classes.Malformed()
		for _, c := range malformed[:min(len(malformed), maxExamples)] {
			s.found(resourceName(c), do+": kubectl edit "+kubectlName(c), "its weight counts as %d: %v", c.Weight, c.WeightErr)
		}
		if more := len(malformed) - maxExamples; more > 0 {
			s.found("classkind/"+name, do+" into each", "the weights of %d more classes are malformed", more)
		}
	}
	s.Summary = without(slices.Sorted(maps.Keys(i.classesErr)), all, fmt.Sprintf("of %d classes", all))
}

// resourceName is the class as set-default takes it.
func resourceName(c *selector.Class) string {
	if c.Namespace == "" {
		return c.Kind.Name + "/" + c.Name
	}
	return c.Kind.Name + "/" + c.Namespace + "/" + c.Name
}

// kubectlName is the class as kubectl takes it.
func kubectlName(c *selector.Class) string {
	if c.Namespace == "" {
		return c.Kind.Name + "/" + c.Name
	}
	return c.Kind.Name + "/" + c.Name + " --namespace " + c.Namespace
}
