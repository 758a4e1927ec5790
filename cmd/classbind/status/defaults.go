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

// checkDefaults says which claim kinds have several default classes, or one that claims
// cannot get.
func checkDefaults(_ context.Context, i *installation, s *Section) {
	with := 0
	i.unreadClasses(s)
	cordoned := map[*selector.Class][]string{} // the claim kinds whose default it is
	for n := range i.claimKinds {
		k := &i.claimKinds[n]
		v, complete := i.view(k)
		bySeat := v.DefaultsBySeat()
		if len(bySeat) > 0 {
			with++
		} else if complete {
			s.note("claims of %s without a selector get no class: none is marked default", k.Name)
		}
		for seat, defaults := range bySeat {
			s.seat(k, v, seat, defaults)
			for _, c := range defaults {
				if c.Cordoned {
					cordoned[c] = append(cordoned[c], k.Name)
				}
			}
		}
	}
	for c, claimKinds := range cordoned {
		s.found(resourceName(c), fmt.Sprintf("kubectl annotate %s %s-, or make another class the default: %s",
			kubectlName(c), v1alpha1.CordonedAnnotation, setDefault("KIND/NAME", claimKinds...)),
			"it is the default of %s and cordoned, so no claim gets it", strings.Join(claimKinds, ", "))
	}
	slices.SortFunc(s.Findings, func(a, b Finding) int { return strings.Compare(a.Where+a.What, b.Where+b.What) })
	s.Summary = fmt.Sprintf("%d of %d claim kinds have one", with, len(i.claimKinds))
}

// seat checks the default classes of a seat.
func (s *Section) seat(k *v1alpha1.ClaimKind, v *selector.View, seat selector.Seat, defaults []*selector.Class) {
	of := k.Name
	if seat.Namespace != "" {
		of += " in namespace " + seat.Namespace
	}
	if len(defaults) > 1 {
		names := make([]string, len(defaults))
		for n, c := range defaults {
			names[n] = resourceName(c)
		}
		s.found("claimkind/"+k.Name, setDefault(names[0], k.Name),
			"%s has %d default classes, and a claim without a selector gets any of them: %s", of, len(defaults), selector.List(names))
	}
	for _, c := range defaults {
		if c.Weight == 0 && v.Kind.Strategy.Weighted {
			s.found(resourceName(c), "give it a weight, or make another class the default: "+setDefault("KIND/NAME", k.Name),
				"it is the default of %s and has weight 0, so no claim gets it by the strategy %s", of, v.Kind.Strategy.Name)
		}
	}
}

func setDefault(class string, claimKinds ...string) string {
	return fmt.Sprintf("classbind set-default %s --for %s", class, strings.Join(claimKinds, ","))
}

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
			s.found(resourceName(c), do+": kubectl edit "+kubectlName(c), "its weight counts as 1: %v", c.WeightErr)
		}
		if more := len(malformed) - maxExamples; more > 0 {
			s.found("classkind/"+name, do+" into each", "the weights of %d more classes count as 1", more)
		}
	}
	s.Summary = fmt.Sprintf("of %d classes", all)
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
