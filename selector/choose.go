package selector

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// View is all that claims of one kind can be bound to. It is immutable.
type View struct {
	Kind *ClaimKind
	// Classes of every class kind that serves the claim kind and whose classes
	// are known, in the order of their names.
	Classes []*Index
	// Fault is why no claim of this kind can be bound, for want of a sound registration.
	Fault error
}

// NewView puts the classes of several kinds together.
func NewView(kind *ClaimKind, classes []*Index) *View {
	slices.SortFunc(classes, func(a, b *Index) int { return strings.Compare(a.Kind.Name, b.Kind.Name) })
	return &View{Kind: kind, Classes: classes, Fault: kind.ambiguous(classes)}
}

// Len is the number of all classes.
func (v *View) Len() int {
	n := 0
	for _, x := range v.Classes {
		n += len(x.Classes)
	}
	return n
}

// Defaults are the classes marked default that are not being deleted.
func (v *View) Defaults() []*Class {
	var defaults []*Class
	for _, x := range v.Classes {
		for _, c := range x.Defaults {
			if !c.Terminating {
				defaults = append(defaults, c)
			}
		}
	}
	return defaults
}

// candidates yields the classes that a claim asks for, before any is dropped.
func (v *View) candidates(claim Claim) iter.Seq[*Class] {
	return func(yield func(*Class) bool) {
		for _, x := range v.Classes {
			if claim.Selector == nil {
				for _, c := range x.Defaults {
					if !yield(c) {
						return
					}
				}
				continue
			}
			for c := range x.matching(claim.Selector) {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Choose decides on a claim. Of the candidates that no filter drops, the
// strategy draws one; fresh seeds the draw where the claim's identity does not.
func (v *View) Choose(claim Claim, fresh uint64) Decision {
	d := Decision{View: v, Claim: claim}
	draw := draw{strategy: v.Kind.Strategy, seed: v.Kind.Seed(claim, fresh)}
candidates:
	for c := range v.candidates(claim) {
		for i := range filters {
			if filters[i].drops(v, claim, c) {
				d.Dropped[i]++
				continue candidates
			}
		}
		d.Candidates++
		draw.offer(c)
	}
	d.Class = draw.winner
	return d
}

// Decision is the class of a claim, and why.
type Decision struct {
	View  *View
	Claim Claim
	// Class is nil where the claim is unmatched.
	Class *Class
	// Candidates are those from which the class was drawn.
	Candidates int
	// Dropped are those that the claim asked for and may not get.
	Dropped Dropped
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

// Warning is what the claim's author or the cluster's admins should know of
// the decision and mend; empty, nothing.
func (d Decision) Warning() string {
	if d.Class == nil {
		return d.unmatched()
	}
	if d.Claim.Selector != nil || d.Candidates == 1 {
		return ""
	}
	defaults := d.View.Defaults()
	names := make([]string, len(defaults))
	for i, c := range defaults {
		names[i] = c.String()
	}
	return fmt.Sprintf("%d classes are marked default for %q, of which %q was drawn: leave the mark on one of %s",
		d.Candidates, d.View.Kind.Name, d.Class, List(names))
}

// unmatched says what was looked for, where, and what would help.
func (d Decision) unmatched() string {
	kinds := make([]string, len(d.View.Classes))
	for i, x := range d.View.Classes {
		kinds[i] = x.Kind.Name
	}
	where := fmt.Sprintf("among %d classes of %s", d.View.Len(), List(kinds))
	if len(kinds) == 0 {
		where = "because no class kind serves it"
	}
	what := fmt.Sprintf("no class for this claim of %q matches the selector %q %s", d.View.Kind.Name, d.Claim.Selector, where)
	remedy := "change the selector, or create or label a class"
	if d.Claim.Selector == nil {
		what = fmt.Sprintf("this claim of %q has no class selector, and no class is marked default %s", d.View.Kind.Name, where)
		remedy = fmt.Sprintf("set %s, or mark a class default", d.View.Kind.selector)
	}
	if d.Dropped.Total() > 0 {
		return fmt.Sprintf("%s that may be had (%s): %s", what, d.dropped(func(f *filter, n int) string {
			return fmt.Sprintf("%d %s", n, f.text)
		}, ", "), remedy)
	}
	return what + ": " + remedy
}

// List is short enough for a warning, which clients may cut off: a few names and a count.
func List(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
