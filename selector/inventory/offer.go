package inventory

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/rules"
)

// Offer is the classes that claims of one kind may get. It is immutable.
type Offer struct {
	// Classes of the class kinds that serve the claim kind, sorted by the kind's name. Kinds whose classes are not known are left out.
	Classes []*Classes
	// LeftOut are the class kinds whose classes no reference can distinguish from those of Classes.
	LeftOut []*ClassKind

	demand *Demand
	sieve  sieve // of Classes
	// All are the classes of the same kinds, in the same order, with those that do not serve the claim kind. Mostly, they are the same.
	All []*Classes
}

// NewOffer of the classes of several kinds. Classes that another offer of the same demand knows are not judged again; nil knows none. The
// fault is that a class kind and the claim kind do not know yet what they need of each other, nil if all do.
func NewOffer(d *Demand, classes []*Classes, before *Offer) (o Offer, unlinked *Fault) {
	slices.SortFunc(classes, func(a, b *Classes) int { return strings.Compare(a.Kind.Name, b.Kind.Name) })
	o = Offer{demand: d, Classes: classes}
	if d.ConfusesKinds() && len(classes) > 1 {
		o.leaveOut()
	}
	o.All, o.Classes = o.Classes, slices.Clone(o.Classes)
	for i, s := range o.All {
		if fault := d.Unlinked(s.Kind); fault != nil {
			unlinked = cmp.Or(unlinked, fault)
		} else {
			o.Classes[i] = d.serving(s, before)
		}
	}
	o.sieve = newSieve(o.Classes)
	return o, unlinked
}

// has reports whether a class is one of these, in this version.
func has(all []*Classes, c *Class) bool {
	return slices.ContainsFunc(all, func(s *Classes) bool { return s.Kind == c.Kind && s.find(c.name()) == c })
}

// Change one class of a kind whose registration has not changed, unless the classes are left out of the offer.
func (o *Offer) Change(from, to *Classes, namespace, name string) (changed bool) {
	place := slices.Index(o.All, from)
	if place < 0 {
		return false
	}
	before := o.Classes[place]
	o.Classes, o.All = slices.Clone(o.Classes), slices.Clone(o.All)
	o.All[place], o.Classes[place] = to, to
	if before != from {
		o.Classes[place] = o.demand.servingAfter(before, to, className{namespace, name})
	}
	o.sieve = o.sieve.changedAt(place, before, o.Classes)
	return true
}

// Partly reports whether some claims may not be offered all classes.
func (o *Offer) Partly() bool {
	return o.demand.Reach.From != v1beta1.FromAll && slices.ContainsFunc(o.Classes, func(s *Classes) bool { return s.Kind.Namespaced })
}

// leaveOut those of the class kinds that no reference can distinguish from one whose name comes first, so that a restore from a backup,
// which creates them in another order, changes nothing. The listed kinds come before all others: who reads the claims looks in these.
func (o *Offer) leaveOut() {
	all := o.Classes
	o.Classes = nil
	for _, listed := range []bool{true, false} {
		for _, s := range all {
			switch {
			case slices.Contains(o.demand.Precedence, s.Kind.Name) != listed:
			case o.insteadOf(s.Kind) == nil:
				o.Classes = append(o.Classes, s)
			default:
				o.LeftOut = append(o.LeftOut, s.Kind)
			}
		}
	}
	slices.SortFunc(o.Classes, func(a, b *Classes) int { return strings.Compare(a.Kind.Name, b.Kind.Name) })
	slices.SortFunc(o.LeftOut, func(a, b *ClassKind) int { return strings.Compare(a.Name, b.Name) })
}

// insteadOf a class kind, claims are offered the classes of the one that it returns, nil if no reference confuses it with another.
func (o *Offer) insteadOf(kind *ClassKind) *ClassKind {
	for _, s := range o.Classes {
		listed := slices.Contains(o.demand.Precedence, s.Kind.Name) && slices.Contains(o.demand.Precedence, kind.Name)
		if !listed && o.demand.reader.Reference.Form.Confuses(s.Kind.GroupVersionKind, kind.GroupVersionKind) {
			return s.Kind
		}
	}
	return nil
}

// Len is the number of classes that claims of the kind are offered, in all namespaces.
func (o *Offer) Len() int {
	n := 0
	for _, s := range o.Classes {
		if o.demand.Reach.SameAsClaim() {
			n += s.Len()
		} else {
			n += s.lenOffered(&o.demand.Reach, "")
		}
	}
	return n
}

// LenOffered is how many classes the claims of a namespace are offered.
func (o *Offer) LenOffered(namespace string) int {
	n := 0
	for _, s := range o.Classes {
		n += s.lenOffered(&o.demand.Reach, namespace)
	}
	return n
}

// FaultOf a class kind is why its classes are left out, nil if they are not.
func (o *Offer) FaultOf(classKind string) *Fault {
	i := slices.IndexFunc(o.LeftOut, func(k *ClassKind) bool { return k.Name == classKind })
	if i < 0 {
		return nil
	}
	kind, first := o.LeftOut[i], o.insteadOf(o.LeftOut[i])
	var forms []string
	for _, f := range claim.Forms {
		if !f.Confuses(kind.GroupVersionKind, first.GroupVersionKind) {
			forms = append(forms, string(f.Name))
		}
	}
	why := "whose name comes first: "
	if slices.Contains(o.demand.Precedence, first.Name) {
		why = "which is listed in spec.classes.kinds of the ClaimKind: list both there, or "
	}
	return Faultf(v1beta1.ReasonAmbiguousReference,
		"the classes of %q are not offered to claims of %q: a reference of the %s cannot distinguish them from those of %q, "+
			"%sset spec.reference.form of the ClaimKind to one that can (%s), or let one class kind serve it",
		classKind, o.demand.reader.Name, o.demand.reader.Reference.Form, first.Name, why, strings.Join(forms, ", "))
}

// Demand is what the claims of one kind ask of classes.
type Demand struct {
	reader *claim.Reader
	rules  *rules.ForClaims
	Reach  claim.Reach
	// Precedence are the class kinds in which a name is looked for, in this order, where no reference distinguishes them.
	Precedence []string
}

// NewDemand of a ClaimKind whose claims are read, and whose expressions are compiled.
func NewDemand(k *v1beta1.ClaimKind, reader *claim.Reader, compiled *rules.ForClaims) Demand {
	of := k.Spec.Classes.Namespaces
	d := Demand{reader: reader, rules: compiled, Reach: claim.Reach{From: of.From, Names: claim.Strings(of.Names...)}}
	if k.Spec.Classes.Precedence == v1beta1.PrecedenceListed && d.ConfusesKinds() {
		for _, link := range k.Spec.Classes.Kinds {
			d.Precedence = append(d.Precedence, link.Name)
		}
	}
	return d
}

// ConfusesKinds reports whether the references of claims cannot distinguish all class kinds.
func (d *Demand) ConfusesKinds() bool { return d.reader.Reference.Form.NamesKind != claim.GroupAndKind }

// ClassOf returns the class that a claim's reference names, nil if it is not known. If it is not there, missing names it as RESOURCE/NAME
// or RESOURCE/NAMESPACE/NAME. A reference to a kind that is not among the classes says nothing. They are those of all class kinds, also of
// those that a View leaves out: a claim may have had its class before. A claim that is settled by another field than its reference, such as
// the name of a volume that exists, may name a class that never was, so it misses none.
func (d *Demand) ClassOf(classes []*Classes, namespace string, object map[string]any) (class *Class, missing string) {
	to, bound := d.reader.Reference.RefersTo(object)
	if !bound || d.reader.Reference.MayRebind(object) || to.Name == "" {
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
	if value, _ := claim.FirstSet(object, d.reader.SkipIfSet); value != nil {
		return nil, ""
	}
	return nil, missing
}

// Named are the classes of the kinds that a reference may mean, and in which namespace, in the order in which the name is looked for.
func (d *Demand) Named(classes []*Classes, namespace string, to claim.Target) iter.Seq2[*Classes, string] {
	if len(d.Precedence) > 0 {
		at := func(s *Classes) uint { return uint(slices.Index(d.Precedence, s.Kind.Name)) } // -1 is the last.
		classes = slices.SortedStableFunc(slices.Values(classes), func(a, b *Classes) int { return cmp.Compare(at(a), at(b)) })
	}
	return func(yield func(*Classes, string) bool) {
		for _, s := range classes {
			kind, in := s.Kind.GroupVersionKind, ""
			isOfGroup := d.reader.Reference.Form.NamesKind != claim.GroupAndKind || kind.Group == to.Group
			if !isOfGroup || d.reader.Reference.Form.NamesKind != claim.NoKind && kind.Kind != to.Kind {
				continue
			}
			if s.Kind.Namespaced {
				in = cmp.Or(to.Namespace, d.reader.Reference.ClassNamespace, namespace)
			}
			if !yield(s, in) {
				return
			}
		}
	}
}

// CountedAs is the value that BoundTo returns for a class.
func (d *Demand) CountedAs(c *Class) uint64 {
	switch d.reader.Reference.Form.NamesKind {
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
	budget := &expression.Budget{Left: v1beta1.MaxClassExpressionCost}
	for _, fits := range [...][]*rules.Fit{d.rules.Fits, c.Kind.ForClaims.Fits} {
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
	return slices.ContainsFunc(d.rules.Fits, isJudge) || slices.ContainsFunc(classes.ForClaims.Fits, isJudge)
}

// Unlinked is the fault of a view whose kinds do not know yet what they need of each other, nil if they do.
func (d *Demand) Unlinked(classes *ClassKind) *Fault {
	missesFit := slices.ContainsFunc(classes.ForClaims.Fits, func(f *rules.Fit) bool {
		return !slices.ContainsFunc(d.rules.LinkedFits, func(l rules.LinkedFit) bool { return l.Name == f.Name })
	})
	missesFields := slices.ContainsFunc(classes.Related, func(r rules.Relation) bool {
		return !r.Kind.Fields.Covers(rules.OfObject(d.rules.LooksAtClassRelated, r.Kind.Name)...)
	})
	looks := classes.ForClaims
	if !missesFit && !missesFields && classes.fields.Covers(d.rules.LooksAtClass...) && d.reader.LooksAt.Covers(looks.LooksAtClaim...) &&
		d.rules.CoversNamespace(looks.LooksAtNamespace...) {
		return nil
	}
	return Faultf(v1beta1.ReasonNotSynced,
		"the classes of %q are being read again, because the expressions of claim kind %q, or of the class kind, look at other fields; "+
			"try again in a moment",
		classes.Name, d.reader.Name)
}

// serving are the classes that can serve the claim kind, with its keys in their index. See NewOffer.
func (d *Demand) serving(s *Classes, before *Offer) *Classes {
	derived, excludes := newDerivation(d, s.Kind), d.mayExclude(s.Kind)
	if derived == nil && !excludes {
		return s
	}
	if before != nil {
		if at := slices.Index(before.All, s); at >= 0 && before.Classes[at] != s {
			return before.Classes[at]
		}
	}
	serves := func(c *Class) bool {
		switch {
		case !excludes:
			return true
		case before != nil && has(before.All, c):
			return has(before.Classes, c)
		}
		return d.Serves(c)
	}
	var all []*Class
	s.Each(func(c *Class) {
		if serves(c) {
			all = append(all, c)
		}
	})
	return newClasses(s.Kind, all, derived)
}

// servingAfter a change, only the class of this name is sorted out.
func (d *Demand) servingAfter(serving, to *Classes, name className) *Classes {
	c := to.find(name)
	if c != nil && !d.Serves(c) {
		c = nil
	}
	return serving.changed(serving.find(name), c)
}
