package inventory

import (
	"cmp"
	"iter"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/rules"
)

// Demand is what the claims of one kind ask of classes.
type Demand struct {
	*claim.Reader
	*rules.ForClaims
	claim.Reach
	// Precedence are the class kinds in which a name is looked for, in this order, where no reference tells
	// them apart.
	Precedence []string
}

// NewDemand of a ClaimKind. The ClassKinds are those that serve it.
func NewDemand(k *v1beta1.ClaimKind, classKinds ...*v1beta1.ClassKind) Demand {
	compiled := rules.NewForClaims(k, classKinds...)
	d := Demand{Reader: claim.NewReader(k, compiled), ForClaims: compiled, Reach: claim.NewReach(k.Spec.Classes.Namespaces)}
	if k.Spec.Classes.Precedence == v1beta1.PrecedenceListed && d.ConfusesKinds() {
		for _, link := range k.Spec.Classes.Kinds {
			d.Precedence = append(d.Precedence, link.Name)
		}
	}
	return d
}

// ConfusesKinds says that the references of claims cannot tell all class kinds apart.
func (d *Demand) ConfusesKinds() bool { return d.Form.NamesKind != claim.GroupAndKind }

// ClassOf returns the class that a claim's reference names, nil if it is not known. If
// it is not there, missing names it as RESOURCE/NAME or RESOURCE/NAMESPACE/NAME. A
// reference to a kind that is not among the classes says nothing. They are those of all
// class kinds, also of those that a View leaves out: a claim may have had its class
// before. A claim that is settled by another field than its reference, such as the name
// of a volume that exists, may name a class that never was, so it misses none.
func (d *Demand) ClassOf(classes []*Classes, namespace string, object map[string]any) (class *Class, missing string) {
	to, bound := d.RefersTo(object)
	if !bound || d.MayRebind(object) || to.Name == "" {
		return nil, ""
	}
	for s, in := range d.Named(classes, namespace, to) {
		if class := s.find(className{in, to.Name}); class != nil {
			return class, ""
		}
		name := to.Name
		if in != "" {
			name = in + "/" + name
		}
		missing = cmp.Or(missing, s.Kind.Name+"/"+name)
	}
	if value, _ := claim.FirstSet(object, d.SkipIfSet); value != nil {
		return nil, ""
	}
	return nil, missing
}

// Named are the classes of the kinds that a reference may mean, and in which namespace, in the order in
// which the name is looked for.
func (d *Demand) Named(classes []*Classes, namespace string, to claim.Target) iter.Seq2[*Classes, string] {
	if len(d.Precedence) > 0 {
		at := func(s *Classes) uint { return uint(slices.Index(d.Precedence, s.Kind.Name)) } // -1 is the last.
		classes = slices.SortedStableFunc(slices.Values(classes), func(a, b *Classes) int { return cmp.Compare(at(a), at(b)) })
	}
	return func(yield func(*Classes, string) bool) {
		for _, s := range classes {
			kind, in := s.Kind.GroupVersionKind, ""
			isOfGroup := d.Form.NamesKind != claim.GroupAndKind || kind.Group == to.Group
			if !isOfGroup || d.Form.NamesKind != claim.NoKind && kind.Kind != to.Kind {
				continue
			}
			if s.Kind.Namespaced {
				in = cmp.Or(to.Namespace, d.ClassNamespace, namespace)
			}
			if !yield(s, in) {
				return
			}
		}
	}
}

// CountedAs is the value that BoundTo returns for a class.
func (d *Demand) CountedAs(c *Class) uint64 {
	switch d.Form.NamesKind {
	case claim.GroupAndKind:
		return c.Place
	case claim.KindAlone:
		return c.groupless
	default:
		return c.kindless
	}
}

// Unmet reports whether a class can serve claims of the kind. If not, by is the condition that
// it does not meet, and term the part of it, and why an error.
func (d *Demand) Unmet(c *Class) (by *rules.Fit, term *expression.Expression, why error) {
	return d.servesWithin(c, &expression.Budget{Left: v1beta1.MaxClassExpressionCost})
}

func (d *Demand) servesWithin(c *Class, budget *expression.Budget) (by *rules.Fit, term *expression.Expression, why error) {
	for _, fits := range [...][]*rules.Fit{d.Fits, c.Kind.ForClaims.Fits} {
		for _, f := range fits {
			if term, why = f.ServedBy(c.Fields, budget); term != nil {
				return f, term, why
			}
		}
	}
	return nil, nil, nil
}

// Serves reports whether a class can serve claims of the kind.
func (d *Demand) Serves(c *Class) bool {
	by, _, _ := d.Unmet(c)
	return by == nil
}

// mayExclude reports whether some classes of a kind may not serve the claims.
func (d *Demand) mayExclude(classes *ClassKind) bool {
	isJudge := func(f *rules.Fit) bool { return len(f.OfClass) > 0 }
	return slices.ContainsFunc(d.Fits, isJudge) || slices.ContainsFunc(classes.ForClaims.Fits, isJudge)
}

// Unlinked is the fault of a view whose kinds do not know yet what they need of each other,
// nil if they do.
func (d *Demand) Unlinked(classes *ClassKind) *Fault {
	missesFit := slices.ContainsFunc(classes.ForClaims.Fits, func(f *rules.Fit) bool {
		return !slices.ContainsFunc(d.LinkedFits, func(l rules.LinkedFit) bool { return l.Name == f.Name })
	})
	if !missesFit && classes.holds(d.LooksAtClass) && d.LooksAt.Covers(classes.ForClaims.LooksAtClaim...) {
		return nil
	}
	return Faultf(v1beta1.ReasonNotSynced,
		"the classes of %q are being read again, because the expressions of claim kind %q, or of the class kind, look at other fields; "+
			"try again in a moment",
		classes.Name, d.Name)
}

// serving are the classes that can serve the claim kind. See NewOffer.
func (d *Demand) serving(s *Classes, before *Offer, live bool) *Classes {
	if !d.mayExclude(s.Kind) {
		return s
	}
	left := expression.Budget{Left: v1beta1.MaxExpressionCost}
	serves := func(c *Class) bool {
		switch {
		case before != nil && before.knows(c):
			return before.has(c)
		case !live:
			return d.Serves(c)
		}
		part := expression.Budget{Left: min(left.Left, v1beta1.MaxClassExpressionCost)}
		left.Left -= part.Left
		by, _, _ := d.servesWithin(c, &part)
		left.Left += part.Left
		return by == nil
	}
	var all []*Class
	s.Each(func(c *Class) {
		if serves(c) {
			all = append(all, c)
		}
	})
	return NewClasses(s.Kind, all)
}

// servingAfter a change, only the class of this name is sorted out.
func (d *Demand) servingAfter(serving, to *Classes, name className) *Classes {
	if !d.mayExclude(to.Kind) {
		return to
	}
	if c := to.find(name); c != nil && d.Serves(c) {
		return serving.put(serving.find(name), c)
	}
	return serving.Without(name.namespace, name.name)
}
