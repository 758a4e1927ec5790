package selector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/rules"
)

// View is all that claims of one kind can be bound to, at one moment. It does not change,
// but the memory of its kind's strategy does.
type View struct {
	offer

	// LeftOut are the class kinds whose classes no reference can tell from those of Classes.
	LeftOut []*ClassKind
	// Unread are the class kinds that name the claim kind and whose classes have never been
	// known, sorted by name. Claims are decided on without them.
	Unread []UnreadKind
	// Fault is why no claim of this kind can be bound, nil if one can.
	Fault *Fault
	// Missing is the fault that some classes are not known, nil if all are. Fault is
	// the same, unless the registration has a fault of its own.
	Missing *Fault
	// RelatedMissing is the fault that related objects are not known, in the same way.
	RelatedMissing *Fault
	// Conflict is, in a view of an Inventory, the fault that another ClaimKind with the same
	// reference comes first by name, nil if none does. It is not in Fault: the entries that the
	// leader writes say which of the two binds claims.
	Conflict *Fault

	// needs are the related kinds of the claim kind, and related the objects of each.
	needs   []*rules.Kind
	related []*Objects
}

// offer is the classes that claims of one kind may get.
type offer struct {
	Kind *ClaimKind
	// Classes of the class kinds that serve the claim kind, sorted by the kind's name.
	// Kinds whose classes are not known are left out.
	Classes []*Classes

	// known are the classes of the same kinds, in the same order, with those that do not
	// serve the claim kind. Mostly, they are the same.
	known []*Classes
	// derivation of keys of the index, nil if there are none.
	derivation *derivation
	// index of all classes, nil if it is not worth making one.
	index *index
}

// UnreadKind is a class kind whose classes have never been known, and the reason in a word.
type UnreadKind struct{ Name, Reason string }

// NewView puts the classes of several kinds together. It has no index, so the time to
// choose grows with the number of classes.
func NewView(kind *ClaimKind, classes []*Classes) *View {
	return viewAfter(kind, classes, nil, false)
}

// With returns a view of the same claim kind with other classes, and no index. Those that the
// view knows are not judged again.
func (v *View) With(classes []*Classes) *View {
	other := viewAfter(v.Kind, classes, v, true)
	other.needs, other.related, other.Unread = v.needs, v.related, v.Unread
	return other
}

// viewAfter another one of the same claim kind, if there is one: classes that it knows are not judged
// again. A live view is made on a claim's way, and costs no more than one claim may.
func viewAfter(kind *ClaimKind, classes []*Classes, before *View, live bool) *View {
	slices.SortFunc(classes, byKind)
	v := &View{offer: offer{Kind: kind, Classes: classes}, Fault: kind.fault}
	if kind.ConfusesKinds() && len(classes) > 1 {
		v.leaveOut()
	}
	v.Fault = cmp.Or(v.Fault, v.serve(before, live))
	return v
}

// Known are all classes of a kind, also those that do not serve the claim kind; nil for a kind
// that the view does not have.
func (v *offer) Known(classKind *ClassKind) *Classes {
	for _, s := range v.known {
		if s.Kind == classKind {
			return s
		}
	}
	return nil
}

// knows reports whether a class is one of those, in this version.
func (v *offer) knows(c *Class) bool {
	s := v.Known(c.Kind)
	return s != nil && s.find(c.name()) == c
}

// has reports whether the class serves the claim kind.
func (v *offer) has(c *Class) bool {
	for _, s := range v.Classes {
		if s.Kind == c.Kind {
			return s.find(c.name()) == c
		}
	}
	return false
}

// serve keeps the classes that can serve the claim kind. It returns the fault that a class kind
// and the claim kind do not know yet what they need of each other, nil if all do.
func (v *offer) serve(before *View, live bool) (unlinked *Fault) {
	v.known = v.Classes
	v.derivation = v.newDerivation()
	for i, s := range v.known {
		if fault := v.Kind.Unlinked(s.Kind); fault != nil {
			unlinked = cmp.Or(unlinked, fault)
			continue
		}
		if serving := v.Kind.serving(s, before, live); serving != s {
			if &v.Classes[0] == &v.known[0] {
				v.Classes = slices.Clone(v.known)
			}
			v.Classes[i] = serving
		}
	}
	return unlinked
}

// replace the known classes of one kind in a copy of a view, after the class of this name changed.
func (v *offer) replace(place int, to *Classes, name className) {
	before := v.Classes[place]
	v.Classes, v.known = slices.Clone(v.Classes), slices.Clone(v.known)
	v.known[place], v.Classes[place] = to, v.Kind.servingAfter(before, to, name)
}

// serving are the classes that can serve the claim kind. See viewAfter.
func (k *ClaimKind) serving(s *Classes, before *View, live bool) *Classes {
	if !k.mayExclude(s.Kind) {
		return s
	}
	left := expression.Budget{Left: v1beta1.MaxExpressionCost}
	serves := func(c *Class) bool {
		switch {
		case before != nil && before.knows(c):
			return before.has(c)
		case !live:
			return k.Serves(c)
		}
		part := expression.Budget{Left: min(left.Left, v1beta1.MaxClassExpressionCost)}
		left.Left -= part.Left
		by, _, _ := k.servesWithin(c, &part)
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
func (k *ClaimKind) servingAfter(serving, to *Classes, name className) *Classes {
	if !k.mayExclude(to.Kind) {
		return to
	}
	if c := to.find(name); c != nil && k.Serves(c) {
		return serving.put(serving.find(name), c)
	}
	return serving.Without(name.namespace, name.name)
}

func byKind(a, b *Classes) int { return strings.Compare(a.Kind.Name, b.Kind.Name) }

// ConfusesKinds says that the references of claims cannot tell all class kinds apart.
func (k *ClaimKind) ConfusesKinds() bool { return k.Form.NamesKind != claim.GroupAndKind }

// leaveOut those of the class kinds that no reference can tell from one whose name comes
// first, so that a restore from a backup, which creates them in another order, changes nothing.
func (v *View) leaveOut() {
	all := v.Classes
	v.Classes = nil
	for _, s := range all {
		if v.insteadOf(s.Kind) == nil {
			v.Classes = append(v.Classes, s)
		} else {
			v.LeftOut = append(v.LeftOut, s.Kind)
		}
	}
}

// insteadOf a class kind, claims are offered the classes of the one that it returns, nil
// if no reference confuses it with another.
func (v *View) insteadOf(kind *ClassKind) *ClassKind {
	for _, s := range v.Classes {
		listed := slices.Contains(v.Kind.precedence, s.Kind.Name) && slices.Contains(v.Kind.precedence, kind.Name)
		if !listed && v.Kind.Form.Confuses(s.Kind.GroupVersionKind, kind.GroupVersionKind) {
			return s.Kind
		}
	}
	return nil
}

// isShadowed reports whether the name of a class means another one to who reads a claim of this namespace, or
// may: the classes of a kind before were never known.
func (v *View) isShadowed(namespace string, c *Class) bool {
	k := v.Kind
	before := k.precedence[:max(slices.Index(k.precedence, c.Kind.Name), 0)]
	if slices.ContainsFunc(v.Unread, func(u UnreadKind) bool { return slices.Contains(before, u.Name) }) {
		return true
	}
	return slices.ContainsFunc(v.known, func(s *Classes) bool {
		in := ""
		if s.Kind.Namespaced {
			in = cmp.Or(c.Namespace, k.ClassNamespace, namespace)
		}
		return slices.Contains(before, s.Kind.Name) && k.Form.Confuses(s.Kind.GroupVersionKind, c.Kind.GroupVersionKind) && s.Has(in, c.Name)
	})
}

// Len is the number of classes that claims of the kind are offered, in all namespaces.
func (v *offer) Len() int {
	n := 0
	for _, s := range v.Classes {
		if v.Kind.Own() {
			n += s.Len()
		} else {
			n += s.lenOffered(&v.Kind.Reach, "")
		}
	}
	return n
}

// lenOffered is how many classes the claims of a namespace are offered.
func (v *offer) lenOffered(namespace string) int {
	n := 0
	for _, s := range v.Classes {
		n += s.lenOffered(&v.Kind.Reach, namespace)
	}
	return n
}

// lenUnserving is how many classes the claims of a namespace would be offered, if these could
// serve the claim kind.
func (v *offer) lenUnserving(namespace string) int {
	n := -v.lenOffered(namespace)
	for _, s := range v.known {
		n += s.lenOffered(&v.Kind.Reach, namespace)
	}
	return n
}

// partly says that some claims may not be offered all classes.
func (v *offer) partly() bool {
	return v.Kind.From != v1beta1.FromAll && slices.ContainsFunc(v.Classes, func(s *Classes) bool { return s.Kind.Namespaced })
}

// serves reports whether a class can serve claims of the kind. If not, by is the condition that
// it does not meet, and term the part of it, and why an error.
func (k *ClaimKind) serves(c *Class) (by *rules.Fit, term *expression.Expression, why error) {
	return k.servesWithin(c, &expression.Budget{Left: v1beta1.MaxClassExpressionCost})
}

func (k *ClaimKind) servesWithin(c *Class, budget *expression.Budget) (by *rules.Fit, term *expression.Expression, why error) {
	for _, fits := range [...][]*rules.Fit{k.Fits, c.Kind.ForClaims.Fits} {
		for _, f := range fits {
			if term, why = f.ServedBy(c.Fields, budget); term != nil {
				return f, term, why
			}
		}
	}
	return nil, nil, nil
}

// Serves reports whether a class can serve claims of the kind.
func (k *ClaimKind) Serves(c *Class) bool {
	by, _, _ := k.serves(c)
	return by == nil
}

// mayExclude reports whether some classes of a kind may not serve the claims.
func (k *ClaimKind) mayExclude(classes *ClassKind) bool {
	isJudge := func(f *rules.Fit) bool { return len(f.OfClass) > 0 }
	return slices.ContainsFunc(k.Fits, isJudge) || slices.ContainsFunc(classes.ForClaims.Fits, isJudge)
}

// Unlinked is the fault of a view whose kinds do not know yet what they need of each other,
// nil if they do.
func (k *ClaimKind) Unlinked(classes *ClassKind) *Fault {
	missesFit := slices.ContainsFunc(classes.ForClaims.Fits, func(f *rules.Fit) bool {
		return !slices.ContainsFunc(k.LinkedFits, func(l rules.LinkedFit) bool { return l.Name == f.Name })
	})
	if !missesFit && classes.holds(k.LooksAtClass) && k.LooksAt.Covers(classes.ForClaims.LooksAtClaim...) {
		return nil
	}
	return &Fault{v1beta1.ReasonNotSynced, fmt.Sprintf(
		"the classes of %q are being read again, because the expressions of claim kind %q, or of the class kind, look at other fields; "+
			"try again in a moment",
		classes.Name, k.Name)}
}
