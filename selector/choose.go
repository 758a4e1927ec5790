package selector

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/classbind/classbind/api/v1alpha1"
)

// View is all that claims of one kind can be bound to, at one moment. It does not change,
// but the memory of its kind's strategy does.
type View struct {
	Kind *ClaimKind
	// Classes of the class kinds that serve the claim kind, sorted by the kind's name.
	// Kinds whose classes are not known are left out.
	Classes []*Classes
	// Fault is why no claim of this kind can be bound, nil if one can.
	Fault *Fault
	// Missing is the fault that some classes are not known, nil if all are. Fault is
	// the same, unless the registration has a fault of its own.
	Missing *Fault

	// index of all classes, nil if it is not worth making one.
	index *index
}

// NewView puts the classes of several kinds together. It has no index, so the time to
// choose grows with the number of classes.
func NewView(kind *ClaimKind, classes []*Classes) *View {
	slices.SortFunc(classes, func(a, b *Classes) int { return strings.Compare(a.Kind.Name, b.Kind.Name) })
	return &View{Kind: kind, Classes: classes, Fault: kind.fault(classes)}
}

// Len is the number of classes that claims of the kind are offered, in all namespaces.
func (v *View) Len() int {
	n := 0
	for _, s := range v.Classes {
		if v.Kind.own() {
			n += s.Len()
		} else {
			n += s.lenOffered(&v.Kind.reach, "")
		}
	}
	return n
}

// lenOffered is how many classes the claims of a namespace are offered.
func (v *View) lenOffered(namespace string) int {
	n := 0
	for _, s := range v.Classes {
		n += s.lenOffered(&v.Kind.reach, namespace)
	}
	return n
}

// each visits the classes that a claim asks for and is offered, before the filters.
func (v *View) each(claim Claim, visit func(*Class)) {
	if claim.Selector == nil {
		v.eachDefault(claim, visit)
		return
	}
	var room queryRoom
	q := newQuery(claim.Selector, &room)
	switch {
	case v.index == nil:
		q.resolve()
	case v.eachIndexed(claim.Namespace, &q, visit):
		return
	}
	if q.nothing {
		return
	}
	for _, s := range v.Classes {
		s.eachOffered(&v.Kind.reach, claim.Namespace, func(c *Class) {
			if q.matches(c.Labels) {
				visit(c)
			}
		})
	}
}

// eachIndexed does the same with the index. It visits none, and returns false, if the
// index saves no work.
func (v *View) eachIndexed(namespace string, q *query, visit func(*Class)) bool {
	if !v.partly() {
		return v.index.each(q, math.MaxInt, visit)
	}
	return v.index.each(q, v.lenOffered(namespace), func(c *Class) {
		if v.Kind.offers(namespace, c) {
			visit(c)
		}
	})
}

// partly says that some claims may not be offered all classes.
func (v *View) partly() bool {
	return v.Kind.from != v1alpha1.FromAll && slices.ContainsFunc(v.Classes, func(s *Classes) bool { return s.Kind.Namespaced })
}

// dropping returns the index of the first filter that drops a candidate, -1 if none.
func (v *View) dropping(claim Claim, c *Class) int {
	for i := range filters {
		if filters[i].drops(v, claim, c) {
			return i
		}
	}
	return -1
}

// Choose decides on a claim. The strategy draws one of the candidates that no filter
// drops. fresh seeds the draw if the claim's identity does not.
// Choose has no effect: under a strategy that remembers its decisions, the next claim may
// get the same class. See Decide.
func (v *View) Choose(claim Claim, fresh uint64) Decision {
	d := Decision{View: v, Claim: claim}
	draw := draw{strategy: v.Kind.Strategy, memory: v.Kind.memory, seed: v.Kind.Seed(claim, fresh)}
	v.each(claim, func(c *Class) {
		if i := v.dropping(claim, c); i >= 0 {
			d.Dropped[i]++
			return
		}
		d.Candidates++
		draw.offer(c)
	})
	d.Class, d.rank = draw.winner, draw.rank
	return d
}

// Decide chooses for good, at the time now: a strategy that remembers its decisions
// remembers this one.
func (v *View) Decide(claim Claim, fresh uint64, now time.Time) Decision {
	for {
		d := v.Choose(claim, fresh)
		if d.Class == nil || v.Kind.memory == nil || v.Kind.memory.commit(claim, d.Class, d.rank, now) {
			return d
		}
	}
}

// Decision is the class of a claim, and why.
type Decision struct {
	View  *View
	Claim Claim
	// Class is nil if the claim is unmatched.
	Class *Class
	// Candidates is how many classes the draw had.
	Candidates int
	// Dropped counts the classes that the claim asked for and may not get.
	Dropped Dropped

	rank int64 // of the class
}

// Reason of the decision in a word, for programs.
func (d Decision) Reason() string {
	switch {
	case d.Class == nil && d.Claim.Selector == nil:
		return "NoDefaultClass"
	case d.Class == nil:
		return "NoMatchingClass"
	case d.Claim.Selector == nil:
		return "DefaultClass"
	}
	return "MatchingClass"
}

// DroppedText is how many candidates each filter dropped, such as
// "Cordoned=2,WeightZero=1", for programs.
func (d Decision) DroppedText() string {
	return d.dropped(func(f *filter, n int) string { return fmt.Sprintf("%s=%d", f.reason, n) }, ",")
}

func (d Decision) dropped(format func(*filter, int) string, separator string) string {
	if d.Dropped.Total() == 0 {
		return ""
	}
	var texts []string
	for i, n := range d.Dropped {
		if n > 0 {
			texts = append(texts, format(&filters[i], n))
		}
	}
	return strings.Join(texts, separator)
}

// Warning tells the claim's author, or the cluster's admins, what to fix. It is empty if
// nothing is wrong.
func (d Decision) Warning() string {
	if d.Class == nil {
		return d.unmatched()
	}
	if d.Claim.Selector != nil || d.Candidates == 1 {
		return ""
	}
	var first []*Class // There may be thousands.
	d.View.each(d.Claim, func(c *Class) {
		if d.View.dropping(d.Claim, c) < 0 {
			i, _ := slices.BinarySearchFunc(first, c, compare)
			first = slices.Insert(first, i, c)
			first = first[:min(len(first), maxListed)]
		}
	})
	names := make([]string, len(first))
	for i, c := range first {
		names[i] = c.String()
	}
	return fmt.Sprintf("%d classes are marked default for %q, of which %q was drawn: leave the mark on one of %s",
		d.Candidates, d.View.Kind.Name, d.Class, list(names, d.Candidates))
}

// unmatched says what the claim asked for, among which classes, and what would help.
func (d Decision) unmatched() string {
	kind := d.View.Kind
	later := ""
	if kind.BindLater {
		later = "; it will be bound when a class matches"
		if d.Claim.Selector == nil {
			later = "; it will be bound when a class is marked default"
		}
	}
	what, remedy := fmt.Sprintf("no class for this claim of %q matches the selector %q", kind.Name, d.selectorText()),
		"change the selector, or create or label a class"
	if d.Claim.Selector == nil {
		what = fmt.Sprintf("this claim of %q has no class selector, and no class is marked default", kind.Name)
		if d.Dropped.Total() > 0 {
			what = fmt.Sprintf("this claim of %q has no class selector, and no class that is marked default can be had", kind.Name)
		}
		remedy = fmt.Sprintf("set %s or the annotation %s, or mark a class default", kind.selector, v1alpha1.ClassSelectorAnnotation)
	}
	if len(d.View.Classes) == 0 {
		return what + ": no class kind serves it: create a ClassKind that names it in spec.claimKinds" + later
	}
	kinds := make([]string, len(d.View.Classes))
	for i, s := range d.View.Classes {
		kinds[i] = s.Kind.Name
	}
	where := fmt.Sprintf("among %d classes of %s", d.View.lenOffered(d.Claim.Namespace), List(kinds))
	switch {
	case d.View.partly() && d.Claim.Namespace == "":
		where += " that claims without a namespace are offered"
	case d.View.partly():
		where += fmt.Sprintf(" that claims of namespace %q are offered", d.Claim.Namespace)
	}
	if dropped := d.dropped(func(f *filter, n int) string { return fmt.Sprintf("%d %s", n, f.text) }, ", "); dropped != "" {
		where += "; dropped: " + dropped
	}
	return fmt.Sprintf("%s (%s): %s%s", what, where, remedy, later)
}

// selectorText is short, so that clients do not cut off the end of a warning.
func (d Decision) selectorText() string {
	if d.Claim.Selector == nil {
		return ""
	}
	const most = 200
	text := d.Claim.Selector.String() // Labels are ASCII.
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// maxListed is how many classes a warning names. Clients may cut off a longer one.
const maxListed = 4

// List names a few, and counts the rest.
func List(names []string) string { return list(names, len(names)) }

func list(first []string, all int) string {
	names := strings.Join(first[:min(len(first), maxListed)], ", ")
	if all > maxListed {
		return fmt.Sprintf("%s and %d more", names, all-maxListed)
	}
	return names
}
