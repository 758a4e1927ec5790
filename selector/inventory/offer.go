package inventory

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/rules"
)

// Offer is the classes that claims of one kind may get. It is immutable.
type Offer struct {
	// Classes of the class kinds that serve the claim kind, sorted by the kind's name.
	// Kinds whose classes are not known are left out.
	Classes []*Classes
	// LeftOut are the class kinds whose classes no reference can tell from those of Classes.
	LeftOut []*ClassKind

	demand *Demand
	// All are the classes of the same kinds, in the same order, with those that do not
	// serve the claim kind. Mostly, they are the same.
	All []*Classes
	// derivation of keys of the index, nil if there are none.
	derivation *derivation
	// index of all classes, nil if it is not worth making one.
	index *index
}

// NewOffer of the classes of several kinds. It has no index, so the time to choose grows with their
// number. Classes that another offer of the same demand knows are not judged again; nil knows
// none. One that is live is made on a claim's way, and costs no more than one claim may. The fault is
// that a class kind and the claim kind do not know yet what they need of each other, nil if all do.
func NewOffer(d *Demand, classes []*Classes, before *Offer, live bool) (o Offer, unlinked *Fault) {
	slices.SortFunc(classes, func(a, b *Classes) int { return strings.Compare(a.Kind.Name, b.Kind.Name) })
	o = Offer{demand: d, Classes: classes}
	if d.ConfusesKinds() && len(classes) > 1 {
		o.leaveOut()
	}
	o.All = o.Classes
	o.derivation = newDerivation(o.demand, o.All)
	for i, s := range o.All {
		if fault := d.Unlinked(s.Kind); fault != nil {
			unlinked = cmp.Or(unlinked, fault)
			continue
		}
		if serving := d.serving(s, before, live); serving != s {
			if &o.Classes[0] == &o.All[0] {
				o.Classes = slices.Clone(o.All)
			}
			o.Classes[i] = serving
		}
	}
	return o, unlinked
}

// Each visits the classes of this namespace's offer that a claim asks for, with the values of its equality terms.
func (o *Offer) Each(namespace string, asked labels.Selector, values Values, visit func(*Class)) {
	var room queryRoom
	q := newQuery(asked, &room)
	if o.derivation != nil {
		q = o.withEqualities(q, values)
		all := visit
		visit = func(c *Class) {
			if o.equals(values, c) {
				all(c)
			}
		}
	}
	switch {
	case o.index == nil:
		q.resolve()
	case o.eachIndexed(namespace, &q, visit):
		return
	}
	if q.nothing {
		return
	}
	for _, s := range o.Classes {
		s.EachOffered(&o.demand.Reach, namespace, func(c *Class) {
			if q.matches(c.Labels) {
				visit(c)
			}
		})
	}
}

// eachIndexed does the same with the index. It visits none, and returns false, if the
// index saves no work.
func (o *Offer) eachIndexed(namespace string, q *query, visit func(*Class)) bool {
	if !o.Partly() {
		return o.index.each(q, math.MaxInt, visit)
	}
	return o.index.each(q, o.LenOffered(namespace), func(c *Class) {
		if o.demand.Offers(namespace, c.Namespace) {
			visit(c)
		}
	})
}

// equals reports whether a class meets the equality terms that the index answers, with or without
// an index: a class that does not is not asked for, as if the selector said so.
func (o *Offer) equals(values Values, c *Class) bool {
	for _, fits := range [...][]*rules.Fit{o.demand.Fits, c.Kind.ForClaims.Fits} {
		for _, f := range fits {
			for _, e := range f.Equal {
				if value := values.Of(e); value != nil && value.Indexed && !value.Equals(c) {
					return false
				}
			}
		}
	}
	return true
}

// withEqualities adds the equality terms of the claim kind that the index can answer. Those of
// a class kind select only where no other kind serves the claim kind.
func (o *Offer) withEqualities(q query, values Values) query {
	if o.index == nil {
		return q
	}
	add := func(fits []*rules.Fit) {
		for _, f := range fits {
			for _, e := range f.Equal {
				value := values.Of(e)
				if value == nil || value.Err != nil || !value.Indexed {
					continue
				}
				from := len(q.values)
				q.values = append(q.values, queryValue{hashed: hash(string(value.text))})
				q.terms = append(q.terms, term{key: hash(e.Key), from: from, to: from + 1, asks: in, derived: true})
			}
		}
	}
	add(o.demand.Fits)
	if len(o.All) == 1 {
		add(o.All[0].Kind.ForClaims.Fits)
	}
	return q
}

// Known are all classes of a kind, also those that do not serve the claim kind; nil for a kind
// that the view does not have.
func (o *Offer) Known(classKind *ClassKind) *Classes {
	for _, s := range o.All {
		if s.Kind == classKind {
			return s
		}
	}
	return nil
}

// knows reports whether a class is one of those, in this version.
func (o *Offer) knows(c *Class) bool {
	s := o.Known(c.Kind)
	return s != nil && s.find(c.name()) == c
}

// has reports whether the class serves the claim kind.
func (o *Offer) has(c *Class) bool {
	for _, s := range o.Classes {
		if s.Kind == c.Kind {
			return s.find(c.name()) == c
		}
	}
	return false
}

// Change of one class of a kind whose registration has not changed. Offers that share an index have
// the same classes, and share the next of both, too.
type Change struct {
	from, to *Classes
	name     className
	made     map[*index]*Offer
}

// NewChange of the class of this name.
func NewChange(from, to *Classes, namespace, name string) *Change {
	return &Change{from, to, className{namespace, name}, map[*index]*Offer{}}
}

// Apply the change to an offer, unless the classes are left out of it.
func (c *Change) Apply(o *Offer) (changed bool) {
	place := slices.Index(o.All, c.from)
	if place < 0 {
		return false
	}
	old, judges := o.index, o.demand.mayExclude(c.to.Kind) // An unlinked offer may share the index, and not the next.
	if twin := c.made[old]; twin != nil && !judges {
		o.All, o.Classes, o.index = twin.All, twin.Classes, twin.index
		return true
	}
	before := o.Classes[place]
	o.Classes, o.All = slices.Clone(o.Classes), slices.Clone(o.All)
	o.All[place], o.Classes[place] = c.to, o.demand.servingAfter(before, c.to, c.name)
	if old != nil {
		o.index = old.changed(before, o.Classes[place], c.name)
		if !judges {
			c.made[old] = o
		}
	}
	return true
}

// MakeIndex of the classes.
func (o *Offer) MakeIndex() { o.index = newIndex(o.Classes, o.derivation) }

// ShareIndex of another offer, if it has the same classes.
func (o *Offer) ShareIndex(other *Offer) bool {
	if other.index == nil || o.derivation != nil || other.derivation != nil || !slices.Equal(o.Classes, other.Classes) {
		return false
	}
	o.index = other.index
	return true
}

// leaveOut those of the class kinds that no reference can tell from one whose name comes
// first, so that a restore from a backup, which creates them in another order, changes nothing.
// The listed kinds come before all others: who reads the claims looks in these.
func (o *Offer) leaveOut() {
	all := slices.Clone(o.Classes)
	slices.SortStableFunc(all, func(a, b *Classes) int { return cmp.Compare(o.unlisted(a), o.unlisted(b)) })
	o.Classes = nil
	for _, s := range all {
		if o.insteadOf(s.Kind) == nil {
			o.Classes = append(o.Classes, s)
		} else {
			o.LeftOut = append(o.LeftOut, s.Kind)
		}
	}
	slices.SortFunc(o.Classes, func(a, b *Classes) int { return strings.Compare(a.Kind.Name, b.Kind.Name) })
	slices.SortFunc(o.LeftOut, func(a, b *ClassKind) int { return strings.Compare(a.Name, b.Name) })
}

// unlisted is 0 for one of the kinds whose order decides, and 1 for others.
func (o *Offer) unlisted(s *Classes) int {
	if slices.Contains(o.demand.Precedence, s.Kind.Name) {
		return 0
	}
	return 1
}

// insteadOf a class kind, claims are offered the classes of the one that it returns, nil
// if no reference confuses it with another.
func (o *Offer) insteadOf(kind *ClassKind) *ClassKind {
	for _, s := range o.Classes {
		listed := slices.Contains(o.demand.Precedence, s.Kind.Name) && slices.Contains(o.demand.Precedence, kind.Name)
		if !listed && o.demand.Form.Confuses(s.Kind.GroupVersionKind, kind.GroupVersionKind) {
			return s.Kind
		}
	}
	return nil
}

// Len is the number of classes that claims of the kind are offered, in all namespaces.
func (o *Offer) Len() int {
	n := 0
	for _, s := range o.Classes {
		if o.demand.Own() {
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

// LenUnserving is how many classes the claims of a namespace would be offered, if these could
// serve the claim kind.
func (o *Offer) LenUnserving(namespace string) int {
	n := -o.LenOffered(namespace)
	for _, s := range o.All {
		n += s.lenOffered(&o.demand.Reach, namespace)
	}
	return n
}

// Partly says that some claims may not be offered all classes.
func (o *Offer) Partly() bool {
	return o.demand.From != v1beta1.FromAll && slices.ContainsFunc(o.Classes, func(s *Classes) bool { return s.Kind.Namespaced })
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
	return Faultf(v1beta1.ReasonAmbiguousReference,
		"the classes of %q are not offered to claims of %q: a reference of the form %s cannot tell them from those of %q, "+
			"whose name comes first: set spec.reference.form of the ClaimKind to one that can (%s), or let one class kind serve it",
		classKind, o.demand.Name, o.demand.Form.Name, first.Name, strings.Join(forms, ", "))
}
