package selector

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// View is all that claims of one kind can be bound to, at one moment. It does not change, but the memory of its kind's strategy does.
type View struct {
	inventory.Offer

	Kind *ClaimKind
	// Unread are the class kinds whose classes have never been known, or are ignored, sorted by name. Claims are decided on without them.
	Unread []UnreadKind
	// Fault is why no claim of this kind can be bound, nil if one can.
	Fault *inventory.Fault
	// Missing is the fault that some classes are not known, nil if all are. Fault is the same, unless the registration has its own.
	Missing *inventory.Fault
	// RelatedMissing is the fault that related objects are not known, in the same way.
	RelatedMissing *inventory.Fault
	// Conflict is, in a view of an Inventory, the fault that another ClaimKind with the same reference comes first by name, nil if none
	// does. It is not in Fault: the entries that the leader writes say which of the two binds claims.
	Conflict *inventory.Fault

	// needs are the related kinds of the claim kind and of its class kinds, and related the objects of each, nil if they are not known.
	needs   []*rules.Kind
	related map[rules.Key]*inventory.Objects

	// replaced is closed when an Inventory has a newer view; nil in a view of none.
	replaced chan struct{}
}

// UnreadKind is a class kind whose classes have never been known, or are ignored, and the reason in a word.
type UnreadKind struct{ Name, Reason string }

// isIgnored reports whether an admin has it ignored.
func (k UnreadKind) isIgnored() bool { return k.Reason == v1beta1.ReasonIgnored }

// Incomplete is why a class that is not in the view may be the default, nil if none can be. So no other class may take its seat.
func (v *View) Incomplete() *inventory.Fault {
	if i := slices.IndexFunc(v.Unread, UnreadKind.isIgnored); i >= 0 && v.Missing == nil {
		return inventory.Faultf(v1beta1.ReasonIgnored, "the classes of %q are ignored, and one of them may be the default: "+
			"remove the annotation %s of the ClassKind, or delete the ClassKind", v.Unread[i].Name, v1beta1.IgnoredAnnotation)
	}
	return v.Missing
}

// NewView puts the classes of several kinds together.
func NewView(kind *ClaimKind, classes []*inventory.Classes) *View {
	return viewAfter(kind, classes, nil)
}

// viewAfter another one of the same claim kind, if there is one. See NewOffer.
func viewAfter(kind *ClaimKind, classes []*inventory.Classes, before *View) *View {
	v := &View{Kind: kind}
	var known *inventory.Offer
	if before != nil {
		known = &before.Offer
	}
	v.Offer, v.Fault = inventory.NewOffer(&kind.Demand, classes, known)
	v.Fault = cmp.Or(kind.fault, v.Fault)
	return v
}

// Related returns the objects of a related kind that the view needs. It is nil if they are not known.
func (v *View) Related(key rules.Key) *inventory.Objects { return v.related[key] }

// seesRelated reports whether an expression of a judged test looks at the objects that a class names.
func (v *View) seesRelated(c *inventory.Class) bool {
	return len(v.Kind.Rules.LooksAtClassRelated) > 0 || c.Kind.ForClaims.FitsSeeRelated
}

// relatedOf a class are the objects that it names, if an expression of a judged test looks at these.
func (v *View) relatedOf(c *inventory.Class, budget *expression.Budget) (map[string]any, error) {
	if !v.seesRelated(c) {
		return nil, nil
	}
	return c.Related(v.Related, budget, nil)
}

// isLong reports whether a class is long, as far as that is known without an evaluation: it is asked of all classes that are left.
func (v *View) isLong(c *inventory.Class) bool {
	length := c.Fields.Length()
	if v.seesRelated(c) {
		length += c.RelatedLength(v.Related)
	}
	return length > v1beta1.LongExpressionCost
}

// lengthOf all that expressions see of a class: its fields, and the objects that it names.
func (v *View) lengthOf(c *inventory.Class) uint64 {
	length := c.Fields.Length()
	related, _ := v.relatedOf(c, &expression.Budget{Left: v1beta1.MaxClassExpressionCost}) // Else the judgement costs too much.
	for _, o := range related {
		length += o.(*expression.Object).Length()
	}
	return length
}

// SameRelated reports whether expressions see the same objects in another view of the claim kind.
func (v *View) SameRelated(o *View) bool { return maps.Equal(v.related, o.related) }

// WithRelated returns the view with related objects, where no Inventory gives it these.
func (v *View) WithRelated(objects []*inventory.Objects) *View {
	other := *v
	other.related = map[rules.Key]*inventory.Objects{}
	for _, o := range objects {
		other.related[o.Kind.Key()] = o
	}
	return &other
}

// eachOffered visits the classes that claims of a namespace are offered.
func (v *View) eachOffered(namespace string, visit func(*inventory.Class)) {
	for _, s := range v.Classes {
		s.EachOffered(&v.Kind.Demand.Reach, namespace, visit)
	}
}

// isShadowed reports whether the name of a class means another to who reads a claim of this namespace, or may: some were never known.
func (v *View) isShadowed(namespace string, c *inventory.Class) bool {
	k := v.Kind
	before := k.Demand.Precedence // A kind that is not listed comes last.
	if i := slices.Index(before, c.Kind.Name); i >= 0 {
		before = before[:i]
	}
	mayConfuse := func(u UnreadKind) bool {
		switch k.Reader.Reference.Form.NamesKind {
		case claim.GroupAndKind:
			return false
		case claim.KindAlone: // Kinds of one name have one plural.
			plural, _, _ := strings.Cut(c.Kind.Name, ".")
			return strings.HasPrefix(u.Name, plural+".")
		case claim.NoKind:
		}
		return true
	}
	if slices.ContainsFunc(v.Unread, func(u UnreadKind) bool { return slices.Contains(before, u.Name) && mayConfuse(u) }) {
		return true
	}
	return slices.ContainsFunc(v.All, func(s *inventory.Classes) bool {
		in := ""
		if s.Kind.Namespaced {
			in = cmp.Or(c.Namespace, k.Reader.Reference.ClassNamespace, namespace)
		}
		return slices.Contains(before, s.Kind.Name) &&
			k.Reader.Reference.Form.Confuses(s.Kind.GroupVersionKind, c.Kind.GroupVersionKind) && s.Find(in, c.Name) != nil
	})
}

// eachMeant visits the kinds, and the namespaces, in which who reads a claim of this namespace may look for the name of a
// class, until visit returns false. It reports whether none did. These are more than that of the class where a form of
// reference cannot distinguish kinds. A claim that may not use one of them may use none.
func (v *View) eachMeant(namespace string, c *inventory.Class, visit func(kind *inventory.ClassKind, namespace string) bool) bool {
	if !visit(c.Kind, c.Namespace) {
		return false
	}
	if len(v.Kind.Demand.Precedence) == 0 && len(v.LeftOut) == 0 {
		return true
	}
	for _, kind := range v.MeantKinds() {
		if kind == c.Kind || !v.Kind.Reader.Reference.Form.Confuses(kind.GroupVersionKind, c.Kind.GroupVersionKind) {
			continue
		}
		in := ""
		if kind.Namespaced {
			in = cmp.Or(c.Namespace, v.Kind.Reader.Reference.ClassNamespace, namespace)
		}
		if !visit(kind, in) {
			return false
		}
	}
	return true
}

// MeantKinds are the kinds whose classes a reference may name: those that are offered, and those that it cannot distinguish from these.
func (v *View) MeantKinds() []*inventory.ClassKind {
	kinds := make([]*inventory.ClassKind, 0, len(v.All)+len(v.LeftOut))
	for _, s := range v.All {
		kinds = append(kinds, s.Kind)
	}
	return append(kinds, v.LeftOut...)
}

// likely reports whether roles allow a claim of this namespace to use a class.
func (v *View) likely(granted *access.Granted, namespace string, c *inventory.Class) bool {
	return v.eachMeant(namespace, c, func(kind *inventory.ClassKind, in string) bool {
		return granted.Allows(kind.Resource().GroupResource(), in, c.Name)
	})
}

// Uses are the classes that a claim of this namespace must be allowed to use to get one: those that the same reference may mean.
func (v *View) Uses(namespace string, c *inventory.Class) (all []access.Class) {
	v.eachMeant(namespace, c, func(kind *inventory.ClassKind, in string) bool {
		all = append(all, access.Class{Resource: kind.Resource(), Namespace: in, Name: c.Name})
		return true
	})
	return all
}

// PolicyDefault is the class that every claim without an opinion gets: a MutatingAdmissionPolicy can give it to them. Its conditions see
// the claim and that class, and nothing else. So there is a fault instead where anything else decides.
func (v *View) PolicyDefault(ctx context.Context) (*inventory.Class, *inventory.Fault) {
	if v.Fault != nil {
		return nil, v.Fault
	}
	if why := v.needsWebhook(); why != "" {
		return nil, inventory.Faultf(v1beta1.ReasonNeedsWebhook, "%s", why)
	}
	defaults := v.DefaultsOf(inventory.Seat{ClaimKind: v.Kind.Name})
	switch len(defaults) {
	case 0:
		return nil, inventory.Faultf(v1beta1.ReasonNoDefault, "no class is marked default")
	case 1:
	default:
		return nil, inventory.Faultf(v1beta1.ReasonSeveralDefaults, "%d classes are marked default", len(defaults))
	}
	c := defaults[0]
	if why := classNeedsWebhook(c, v.Kind.Strategy.Weighted); why != "" {
		return nil, inventory.Faultf(v1beta1.ReasonNeedsWebhook, "%s", why)
	}
	by, _ := firstDrop(ctx, v.Kind.cheap(), Subject{View: v}, c) // There are no others.
	if by == nil {
		return c, nil
	}
	reason := v1beta1.ReasonNeedsWebhook
	switch by.Reason {
	case reasonCordoned:
		reason = v1beta1.ReasonDefaultCordoned
	case reasonWeightZero:
		reason = v1beta1.ReasonWeightZero
	}
	return nil, inventory.Faultf(reason, "the default class %s is %s", c, by.Text)
}

// needsWebhook says why only classbind can determine which class a claim without an opinion gets; empty, the API server can, too.
func (v *View) needsWebhook() string {
	k := v.Kind
	switch {
	case k.Strategy.Webhook != "":
		return fmt.Sprintf("with %s, %s", k.Strategy.Name, k.Strategy.Webhook)
	case !k.Rules.IsEmpty():
		return "an expression of the ClaimKind decides"
	case slices.Contains([]v1beta1.WhenAbsent{
		v1beta1.NoSelectorOnly, v1beta1.NoSelectorAny, v1beta1.NoSelectorLeaveAlone,
	}, k.Reader.WhenNoSelector):
		return fmt.Sprintf("with selector.whenAbsent %s, claims without a selector need not get the default class", k.Reader.WhenNoSelector)
	case k.Reader.Reference.LeavesAbsent:
		return "with reference.whenAbsent LeaveAlone, a claim without a reference does not get the default class"
	case len(k.Demand.Precedence) > 0:
		return "with classes.precedence Listed, a class of another kind may have the name of the default class"
	case k.Reader.Annotates:
		return "with choice.annotate Decision, a claim is annotated with the decision, and a policy makes none"
	case k.Demand.Reach.SameAsClaim() && slices.ContainsFunc(v.Classes, func(s *inventory.Classes) bool { return s.Kind.Namespaced }):
		return "each namespace may have a default class of its own"
	}
	return ""
}

// classNeedsWebhook says why the API server cannot determine whether a class is the default; empty, it can.
func classNeedsWebhook(c *inventory.Class, weighted bool) string {
	r := c.Kind.ForClaims
	if len(r.Fits) > 0 || r.OfferWhen != nil || r.IsDefault != nil || weighted && r.Weight != nil {
		return fmt.Sprintf("an expression of the ClassKind %q decides", c.Kind.Name)
	}
	if c.Kind.HasCapacity() {
		return fmt.Sprintf("the ClassKind %q has a capacity, and only classbind knows whether the default class has room", c.Kind.Name)
	}
	return ""
}

// ReadsAnnotation reports whether a registration makes an annotation of claims or classes matter.
func (s Snapshot) ReadsAnnotation(key string) bool {
	reads := func(k *inventory.ClassKind) bool { return k.ReadsAnnotation(key) }
	for _, v := range s {
		if v.Kind.Reader.ReadsAnnotation(key) || slices.ContainsFunc(v.MeantKinds(), reads) {
			return true
		}
	}
	return false
}

// OrderMatters is the fault that another kind of the same claims looks where this one has its reference, or the other way round, nil if
// none does. Webhooks are called in the order of their names. Policies come before all of them, in no order.
func (s Snapshot) OrderMatters(k *ClaimKind) *inventory.Fault {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		o := s[name].Kind
		if name == k.Name || o.reserved.resource != k.reserved.resource || s[name].Conflict != nil {
			continue
		}
		if k.Reader.ReadsReferenceOf(o.Reader) || o.Reader.ReadsReferenceOf(k.Reader) {
			return inventory.Faultf(v1beta1.ReasonNeedsWebhook,
				"claim kind %q is for the same claims, and the reference of one of the two matters to the other", name)
		}
	}
	return nil
}
