package selector

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// ClaimKind is a registered kind of claim, compiled once: how its claims are read, what expressions say, and how a class is chosen.
type ClaimKind struct {
	// Name of the ClaimKind.
	Name string
	// Reader reads its claims, Rules are its expressions, and Demand is what its claims ask of classes.
	Reader *claim.Reader
	Rules  *rules.ForClaims
	Demand inventory.Demand
	// reserved is the reference that no other ClaimKind may have.
	reserved reserved

	// Revision of the ClaimKind from which it was compiled.
	Revision inventory.Revision
	// Counted reports whether claims are counted by class, and Watched whether all replicas watch them: see CountsClaims, WatchesClaims.
	Counted, Watched bool
	// Serial is another one once claims may be read, counted or bound in another way: the ClaimKind
	// changed, or the fits, the capacity or onDelete of a ClassKind that serves it, and not only the status.
	Serial uint64
	// Limited reports whether a class kind that serves it has a capacity.
	Limited bool
	// Tally counts the claims by class, where they are watched. Nil counts none.
	Tally *Tally
	// Room is how much of a class is taken, for a claim of a namespace. Nil does not know: each class counts as empty.
	Room func(namespace string, c *inventory.Class) Room
	// Deny refuses a claim if no class matches, and BindLater binds it later.
	Deny, BindLater bool
	// Strategy chooses among several candidates.
	Strategy   Strategy
	memory     memory // nil if the strategy has none
	freshSeeds bool
	// External is the chooser; nil without one.
	External *v1beta1.External
	// Use is whose right to use a class counts; empty, every claim may have every class.
	Use v1beta1.UseSubject
	// tests of a class, without gates. The first of them, as many as free, evaluate no expression.
	tests []Test
	free  int
	// CannotBindLater is whether the leader could not bind claims later when it last tried, by the status. It is for texts alone.
	CannotBindLater atomic.Bool
	// immutable is the rule of the schema for which claims are not bound later, empty if there is none.
	immutable string
	// selectorAbsent reports whether the schema of the claims has no field for the selector.
	selectorAbsent bool
	// fault of the registration, whatever its classes; nil if there is none.
	fault *inventory.Fault
}

// NewClaimKind compiles a ClaimKind. The ClassKinds are those that serve it.
func NewClaimKind(k *v1beta1.ClaimKind, classKinds ...*v1beta1.ClassKind) *ClaimKind {
	compiled := rules.NewForClaims(k, classKinds...)
	reader := claim.NewReader(k, compiled)
	c := &ClaimKind{
		Name:       k.Name,
		Reader:     reader,
		Rules:      compiled,
		Demand:     inventory.NewDemand(k, reader, compiled),
		reserved:   reservedBy(k),
		Revision:   inventory.RevisionOf(k),
		Counted:    CountsClaims(k, classKinds...),
		Watched:    WatchesClaims(k, classKinds...),
		Limited:    slices.ContainsFunc(classKinds, (*v1beta1.ClassKind).HasCapacity),
		Deny:       k.Spec.WhenUnmatched == v1beta1.Deny,
		BindLater:  k.Spec.WhenUnmatched == v1beta1.BindLater,
		freshSeeds: k.Spec.Choice.Seed.From == v1beta1.SeedRequest,
		External:   k.Spec.Choice.External,
		Use:        useOf(k),
	}
	name := cmp.Or(k.Spec.Choice.Strategy, v1beta1.WeightedRandom)
	c.Strategy = strategies[name]
	c.Strategy.Name = name
	c.fault = cmp.Or(unknownValue(k), inventory.FaultOf("claim kind", k.Name, c.Rules.Invalid))
	c.CannotBindLater.Store(CannotBindLater(k))
	if c.Strategy.newMemory != nil {
		c.memory = c.Strategy.newMemory(c)
	}
	c.compileTests()
	return c
}

// Same reports whether both decide on claims, and count them, in the same way, as far as their registrations say.
func (k *ClaimKind) Same(o *ClaimKind) bool {
	return k.Revision == o.Revision && k.Counted == o.Counted && k.Limited == o.Limited &&
		reflect.DeepEqual(k.Rules.Linked, o.Rules.Linked) && reflect.DeepEqual(k.Rules.Namespaces, o.Rules.Namespaces) &&
		slices.Equal(k.Rules.LinkedFits, o.Rules.LinkedFits)
}

// CountsClaims reports whether the claims of each class are counted: for the strategy, or for one of the ClassKinds that serve the kind.
func CountsClaims(k *v1beta1.ClaimKind, serving ...*v1beta1.ClassKind) bool {
	return strategies[k.Spec.Choice.Strategy].Counted || slices.ContainsFunc(serving, (*v1beta1.ClassKind).CountsClaims)
}

// WatchesClaims reports whether the claims of a kind are watched: because they are counted, or because they are bound later.
func WatchesClaims(k *v1beta1.ClaimKind, serving ...*v1beta1.ClassKind) bool {
	return k.Spec.WhenUnmatched == v1beta1.BindLater || CountsClaims(k, serving...)
}

// CannotBindLater reports whether LateBinding is False on a ClaimKind.
func CannotBindLater(k *v1beta1.ClaimKind) bool {
	return meta.IsStatusConditionFalse(k.Status.Conditions, v1beta1.ConditionLateBinding)
}

// RelatedKinds are those whose objects claims name, and Namespaces, if the expressions of a claim kind look at these, sorted.
func (k *ClaimKind) RelatedKinds() []*rules.Kind {
	return rules.Union(append(rules.Kinds(k.Rules.Related), k.Rules.Namespaces)...)
}

// reserved is what no two ClaimKinds may have: one reference of one kind of claim. Of those that do, the first by name is served: a restore
// from a backup keeps no other order.
type reserved struct {
	resource string
	place    v1beta1.Place
}

func reservedBy(k *v1beta1.ClaimKind) reserved {
	return reserved{k.Resource(), k.Spec.Reference.Main()}
}

// conflict is the fault of a ClaimKind if another one comes first by name, nil if it is the first itself.
func (r *reserved) conflict(name, first string) *inventory.Fault {
	if name == first {
		return nil
	}
	return inventory.Faultf(v1beta1.ReasonConflict,
		"claim kind %q binds no claim: %q, whose name comes first, binds claims of %q by the same reference, %s: "+
			"set another spec.reference, or delete one of the two",
		name, first, r.resource, fields.Path(r.place.Names()))
}

// ConflictOf a ClaimKind is its fault if one of these comes first by name and has the same resource and reference, nil if none does.
func ConflictOf(k *v1beta1.ClaimKind, all []v1beta1.ClaimKind) *inventory.Fault {
	own, first := reservedBy(k), k.Name
	for i := range all {
		if all[i].Name < first && reservedBy(&all[i]) == own {
			first = all[i].Name
		}
	}
	return own.conflict(k.Name, first)
}

// enumeration is a field whose value is one of those that are known, in a table of all.
type enumeration struct {
	field, value string
	known        []string
}

func oneOf[T ~string](field string, value T, known ...T) enumeration {
	return enumeration{field, string(value), claim.Strings(known...)}
}

func operatorsOf(field string, of *v1beta1.LabelSelector) (all []enumeration) {
	if of == nil {
		return nil
	}
	for i, e := range of.MatchExpressions {
		all = append(all, oneOf(fmt.Sprintf("%s.matchExpressions[%d].operator", field, i), e.Operator, claim.LabelOperators...))
	}
	return all
}

// unknownValue is the fault of a ClaimKind with a value that this release does not know, nil if there is none. Another release accepted it:
// to use the default instead would permanently bind claims in a way that was not configured. An absent value is the default: the API server
// fills that in, except for a field that its CRD does not have yet.
func unknownValue(k *v1beta1.ClaimKind) *inventory.Fault {
	forms := make([]v1beta1.ReferenceForm, len(claim.Forms))
	for i, f := range claim.Forms {
		forms[i] = f.Name
	}
	reference, classes, choice, admission := &k.Spec.Reference, &k.Spec.Classes, &k.Spec.Choice, &k.Spec.Admission
	all := []enumeration{
		oneOf("reference.form", reference.Form, forms...),
		oneOf("reference.list", reference.List, v1beta1.ListWhenAbsent, v1beta1.ListCheckOnly),
		oneOf("reference.whenEmpty", reference.WhenEmpty, v1beta1.BindEmpty, v1beta1.LeaveEmptyAlone),
		oneOf("reference.whenAbsent", reference.WhenAbsent, v1beta1.BindAbsent, v1beta1.LeaveAbsentAlone),
		oneOf("reference.explicit", reference.Explicit, v1beta1.AllowExplicit, v1beta1.CheckExplicit),
		oneOf("classes.precedence", classes.Precedence, v1beta1.PrecedenceName, v1beta1.PrecedenceListed),
		oneOf("reference.whenParentAbsent", reference.WhenParentAbsent, v1beta1.CreateParent, v1beta1.LeaveClaimAlone),
		oneOf("selector.whenAbsent", k.Spec.Selector.WhenAbsent,
			v1beta1.NoSelectorDefault, v1beta1.NoSelectorDefaultIfAny, v1beta1.NoSelectorOnly, v1beta1.NoSelectorAny,
			v1beta1.NoSelectorLeaveAlone),
		oneOf("classes.namespaces.from", classes.Namespaces.From, v1beta1.FromSameAsClaim, v1beta1.FromAll, v1beta1.FromNames),
		oneOf("classes.use.subject", useOf(k), v1beta1.UseByNamespace, v1beta1.UseByRequester),
		oneOf("choice.strategy", choice.Strategy, slices.Collect(maps.Keys(strategies))...),
		oneOf("choice.annotate", choice.Annotate, v1beta1.AnnotateNothing, v1beta1.AnnotateDecision),
		oneOf("choice.seed.from", choice.Seed.From, v1beta1.SeedClaim, v1beta1.SeedRequest, v1beta1.SeedExpression),
		oneOf("whenUnmatched", k.Spec.WhenUnmatched, v1beta1.Admit, v1beta1.Deny, v1beta1.BindLater),
		oneOf("admission.defaulting", admission.Defaulting, v1beta1.DefaultingWebhook, v1beta1.DefaultingPolicy),
		oneOf("reference.onUnbind", reference.OnUnbind, v1beta1.RestoreReference, v1beta1.AllowUnbind),
		oneOf("admission.order", admission.Order, v1beta1.OrderLast, v1beta1.OrderFirst),
		oneOf("admission.failurePolicy", admission.FailurePolicy, v1beta1.Fail, v1beta1.Ignore),
	}
	if choice.External != nil {
		all = append(all, oneOf("choice.external.whenUnavailable", choice.External.WhenUnavailable,
			v1beta1.UnavailableDraw, v1beta1.UnavailableFail))
	}
	for i, part := range reference.Parts {
		all = append(all, oneOf(fmt.Sprintf("reference.parts[%d].is", i), part.Is, v1beta1.NamePart, v1beta1.KindPart,
			v1beta1.GroupPart, v1beta1.APIVersionPart, v1beta1.NamespacePart, v1beta1.FlagPart))
	}
	all = append(all, operatorsOf("claims.namespaceSelector", &k.Spec.Claims.NamespaceSelector)...)
	for i, of := range classes.Related {
		all = append(all, operatorsOf(fmt.Sprintf("classes.related[%d].selector", i), of.Selector)...)
	}
	for _, f := range all {
		if f.value != "" && !slices.Contains(f.known, f.value) {
			slices.Sort(f.known)
			return inventory.Faultf(v1beta1.ReasonUnknownValue,
				"claim kind %q has the %s %q, which this release of classbind does not know: "+
					"set spec.%s to one of %s, or upgrade classbind",
				k.Name, f.field, f.value, f.field, strings.Join(f.known, ", "))
		}
	}
	return nil
}

// OfPaths reports whether a fault with this reason is that of a registration that does not fit the schema of its claims.
func OfPaths(reason string) bool {
	return reason == v1beta1.ReasonReferencePruned || reason == v1beta1.ReasonPathsInvalid
}
