package status

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// faultsOfClaims are the reasons of a fault for which no claim is bound, neither now nor later.
var faultsOfClaims = []string{
	v1beta1.ReasonConflict, v1beta1.ReasonInvalidExpression, v1beta1.ReasonRelatedMissing,
	v1beta1.ReasonReferencePruned, v1beta1.ReasonPathsInvalid, v1beta1.ReasonUnknownValue,
}

// count of objects, in the type of a status.
func count[N int | int64](n N) int32 { return int32(min(max(int64(n), 0), math.MaxInt32)) }

// describeClaims writes the numbers of a kind's claims into its status, and returns whether they are bound later, and counted.
func (s *Writer) describeClaims(k *v1beta1.ClaimKind, counted bool, ready metav1.Condition) (later, counts metav1.Condition) {
	status, bindsLater := &k.Status, k.Spec.WhenUnmatched == v1beta1.BindLater
	if n, known := s.Claims.CountsOf(k.Name); known { // Until then, the numbers of the last leader stay.
		status.BoundClaims, status.WaitingClaims = new(count(n.Bound)), new(count(n.Waiting))
	}
	if !bindsLater { // No claim waits.
		status.WaitingClaims = nil
	}
	settle := func(err error, c metav1.Condition) metav1.Condition {
		if before := last(status.Conditions, c.Type); latebinding.NotYet(err) && before.Type != "" {
			return before // It is the last leader's, and stays while this watch begins.
		}
		return c
	}
	if bindsLater {
		err := s.Claims.LateProblem(k.Name)
		if slices.Contains(faultsOfClaims, ready.Reason) {
			err = &inventory.Fault{Reason: ready.Reason, Text: ready.Message}
		} else if paths, known := s.Registration.PathsOf(k); known && err == nil {
			err = refusedLater(paths.Check)
		}
		later = settle(err, lateBinding(err))
	}
	if counted {
		err := s.Claims.Problem(k.Name)
		counts = settle(err, claimsCounted(err))
	} else if !bindsLater {
		status.BoundClaims = nil
	}
	return later, counts
}

// refusedLater is why the schema refuses references that are added to claims later, nil if it does not.
func refusedLater(c selector.PathsCheck) error {
	if c.Immutable == "" {
		return nil
	}
	return inventory.Faultf(v1beta1.ReasonReferenceRefused, "the schema refuses a reference that is added to a claim later (%s): "+
		"set spec.whenUnmatched of the ClaimKind to Deny, so that authors create such claims again", c.Immutable)
}

// lateBinding is the condition of a kind with BindLater, by why its claims cannot be bound later.
func lateBinding(err error) metav1.Condition {
	return ofWatch(err, v1beta1.ConditionLateBinding,
		"claims without a class are bound when there is one for them", "claims without a class are not bound later")
}

// claimsCounted is the condition of a kind whose claims are to be counted, by why they cannot be.
func claimsCounted(err error) metav1.Condition {
	return ofWatch(err, v1beta1.ConditionClaimsCounted, "the claims of each class are counted",
		"the claims of each class are not counted, so only those bound in the last 40 seconds count, and no class "+
			"is deleted whose ClassKind has spec.onDelete Deny")
}

// countClaims writes how many claims have a class of a kind, nil classes if those are not known.
func (s *Writer) countClaims(k *v1beta1.ClassKind, classes *inventory.Classes) {
	if classes == nil {
		k.Status.Claims = nil
		return
	}
	n, known, complete := s.Claims.OfClasses(classes)
	switch {
	case !complete: // The number of the last leader stays.
	case known:
		k.Status.Claims = new(count(n))
	default:
		k.Status.Claims = nil
	}
}

// onClassCounts calls a function with each class kind that serves a claim kind whose claims were described, until the context ends. So
// claims that change one by one ask for many class kinds no more often than for one claim kind.
func (s *Writer) onClassCounts(ctx context.Context, call func(classKind string)) {
	s.counted.Add(ctx, func(claimKind string) {
		if view := s.Snapshot()[claimKind]; view != nil {
			for _, classes := range view.Classes {
				call(classes.Kind.Name)
			}
		}
	})
}

// ofWatch has the message without an error, and unmet with one.
func ofWatch(err error, conditionType, message, unmet string) metav1.Condition {
	c := met(conditionType, v1beta1.ReasonWatched, message)
	if err == nil {
		return c
	}
	c = failed(c, registry.ReasonFor(err), "%s: %v", unmet, err)
	if apierrors.IsForbidden(err) {
		c.Reason = v1beta1.ReasonNotPermitted
		c.Message += ": label a ClusterRole that allows list, watch and, for BindLater, patch with " + v1beta1.AggregateLabel + "=true"
	}
	return c
}

// classKindsKnown reports whether the classes of every class kind that serves a claim kind are known, and what lets classbind read them,
// and whether those that it names are registered.
func (s *Writer) classKindsKnown(ctx context.Context, k *v1beta1.ClaimKind, view *selector.View) (metav1.Condition, error) {
	var missing []string
	for _, named := range k.Spec.Classes.Kinds {
		err := s.Client.Get(ctx, client.ObjectKey{Name: named.Name}, &v1beta1.ClassKind{})
		if client.IgnoreNotFound(err) != nil {
			return metav1.Condition{}, fmt.Errorf("cannot get class kind %q: %w", named.Name, err)
		}
		if err != nil {
			missing = append(missing, named.Name)
		}
	}
	c := classKindsRead(view.Unread, func(name string) string { return s.ClassKinds.State(name).Message })
	if c.Status == metav1.ConditionTrue && len(missing) > 0 {
		c = failed(c, v1beta1.ReasonNotRegistered, "%s", unregistered("spec.classes.kinds", "ClassKind", missing))
	}
	return c, nil
}

// classKindsRead is the condition of a claim kind, by the class kinds that are not read, with the message of each.
func classKindsRead(unread []selector.UnreadKind, message func(classKind string) string) metav1.Condition {
	c := met(v1beta1.ConditionClassKindsRead, v1beta1.ReasonClassKindsRead,
		"the classes of every installed class kind that serves it are known")
	if len(unread) > 0 {
		why := func(u selector.UnreadKind) string { return fmt.Sprintf("%q: %s", u.Name, message(u.Name)) }
		c = failed(c, unread[0].Reason, "claims are decided on without the classes of %s", selector.ListFunc(unread, why))
	}
	return c
}

// claimExpressions reports whether the expressions of a claim kind compile, if it has any.
func (s *Writer) claimExpressions(k *v1beta1.ClaimKind, view *selector.View) (c metav1.Condition) {
	if k.Spec.HasExpressions() {
		mistyped, known := s.claimTypes.of(k)
		c = untilTyped(k.Status.Conditions, expressionsValid(view.Kind.Rules.InvalidExpressions(), mistyped), known)
	}
	return c
}

// relatedKnown reports whether the objects that the claims or the classes of a kind name are known, if they name any.
func relatedKnown(related registry.State) (c metav1.Condition) {
	switch {
	case related.Reason == "":
		return c
	case related.Known && related.Reason != v1beta1.ReasonNamespaceUnknown && related.Reason != v1beta1.ReasonTooLarge:
		return met(v1beta1.ConditionRelatedKnown, related.Reason, related.Message)
	}
	return failed(metav1.Condition{Type: v1beta1.ConditionRelatedKnown}, related.Reason, "%s", related.Message)
}

// outcomes returns what became of the policy of a claim kind, false if that is not known.
type outcomes interface {
	Outcome(claimKind string) (webhookconfig.PolicyOutcome, bool)
}

// defaulting reports whether the API server itself gives the default class, for a kind that asks for it.
func defaulting(of outcomes, k *v1beta1.ClaimKind) (c metav1.Condition) {
	if k.Spec.Admission.Defaulting != v1beta1.DefaultingPolicy {
		return c
	}
	outcome, known := of.Outcome(k.Name)
	c = met(v1beta1.ConditionDefaultedByPolicy, v1beta1.ReasonConfigured,
		fmt.Sprintf("the API server itself gives the default class %s to claims without a selector", outcome.Class))
	return ofPolicy(k, outcome, known, c, "claims without a selector come to classbind")
}

// use does the same for whether the API server itself checks who may use a class.
func use(of outcomes, k *v1beta1.ClaimKind) (c metav1.Condition) {
	if k.Spec.Classes.Use == nil {
		return c
	}
	outcome, known := of.Outcome(k.Name)
	c = met(v1beta1.ConditionUseEnforced, v1beta1.ReasonEnforced, "the API server itself checks who may use the class that a claim names")
	return ofPolicy(k, outcome, known, c, "who may use a class is not checked as registered")
}

// chooserReady reports whether this replica can use the chooser, for a kind that has one. Until that is known, the last one stays.
func (s *Writer) chooserReady(k *v1beta1.ClaimKind) (c metav1.Condition) {
	if k.Spec.Choice.External == nil {
		return c
	}
	state, known := s.Choosers.StateOf(k.Name)
	switch c = met(v1beta1.ConditionChooserReady, v1beta1.ReasonAnswering, "the chooser answers"); {
	case !known:
		c = last(k.Status.Conditions, v1beta1.ConditionChooserReady)
	case state.Reason != "":
		c = failed(c, state.Reason, "the chooser at %s is not usable: %s", k.Spec.Choice.External.Address(), state.Message)
	}
	return c
}

// ofPolicy is the condition without a fault, and unmet with one. Until the leader knows, that of the last one stays.
func ofPolicy(
	k *v1beta1.ClaimKind, outcome webhookconfig.PolicyOutcome, known bool, c metav1.Condition, unmet string,
) metav1.Condition {
	fault := outcome.Fault
	if !known {
		if before := last(k.Status.Conditions, c.Type); before.Type != "" {
			return before
		}
		fault = &inventory.Fault{Reason: v1beta1.ReasonNotConfigured, Text: "the classes of the kind are not known yet"}
	}
	if fault != nil {
		c = failed(c, fault.Reason, "%s: %s", unmet, fault.Text)
		if fault.Reason == v1beta1.ReasonNotConfigured { // It is a matter of seconds.
			c.Status = metav1.ConditionUnknown
		}
	}
	if outcome.Others != "" {
		c.Message += "; " + outcome.Others
	}
	return c
}

// letsClustersStart says of a ClaimKind if it may stop a cluster from coming up, and of others nothing.
func letsClustersStart(k *v1beta1.ClaimKind) (c metav1.Condition) {
	if why := claim.StopsStart(k); why != "" {
		c = failed(metav1.Condition{Type: v1beta1.ConditionLetsClustersStart}, v1beta1.ReasonNeededToStart, "%s", why)
	}
	return c
}

// builtinDefault says of claims to which the API server may give a class before webhooks whether their selectors are read, and of others
// nothing. No event reports a change, so it is to be asked again.
func builtinDefault(ctx context.Context, live client.Reader, k *v1beta1.ClaimKind) (c metav1.Condition) {
	of := cluster.BuiltinDefaultOf(k)
	if of == nil {
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, registry.LookUpTimeout)
	defer cancel()
	defaults, err := of.Classes(ctx, live)
	return selectorsRead(of, defaults, truncate.Error(err))
}

func selectorsRead(of *cluster.BuiltinDefault, defaults []metav1.PartialObjectMetadata, err error) metav1.Condition {
	kind := of.Class.Kind
	c := met(v1beta1.ConditionSelectorsRead, v1beta1.ReasonNoBuiltinDefault,
		fmt.Sprintf("no %s is the default of Kubernetes, so claims without one are bound", kind))
	switch {
	case err != nil:
		c = failed(c, v1beta1.ReasonNotSynced, "cannot determine whether there is a default %s: %v", kind, err)
		c.Status = metav1.ConditionUnknown
		if apierrors.IsForbidden(err) {
			c.Reason = v1beta1.ReasonNotPermitted
		}
	case len(defaults) > 0:
		c = failed(c, v1beta1.ReasonBuiltinDefault, "the API server gives every claim without a %s the default one, %q, "+
			"before classbind is asked, so its class selector does nothing: %s", kind, defaults[0].Name, of.Unmark(defaults))
	}
	return c
}

// describePaths writes into the status what the schema requires, and returns whether the paths are valid. Until they are compared, that of
// the last leader stays.
func (s *Writer) describePaths(k *v1beta1.ClaimKind, view *selector.View) metav1.Condition {
	paths, known := s.Registration.PathsOf(k)
	if !known {
		return last(k.Status.Conditions, v1beta1.ConditionPathsValid)
	}
	k.Status.Required, k.Status.SelectorAbsent = paths.Check.Required, paths.Check.SelectorAbsent
	return paths.Condition(view)
}

// setDefaults writes the default classes of all seats into the status, and returns whether each seat has one at most.
func setDefaults(k *v1beta1.ClaimKind, view *selector.View) metav1.Condition {
	const most = 16 // in the schema
	of := view.DefaultsBySeat()
	ofAll := of[inventory.Seat{ClaimKind: k.Name}]
	k.Status.Defaults, k.Status.DefaultCount = nil, count(len(ofAll))
	for _, c := range ofAll[:min(len(ofAll), most)] {
		k.Status.Defaults = append(k.Status.Defaults, v1beta1.DefaultClass{
			Kind: c.Kind.GroupVersionKind.Kind, Namespace: c.Namespace, Name: c.Name, Cordoned: c.Cordoned,
		})
	}
	k.Status.NamespaceDefaults, k.Status.PartitionDefaults = 0, 0
	for seat := range of {
		switch {
		case seat.Partition != "":
			k.Status.PartitionDefaults++
		case seat.Namespace != "":
			k.Status.NamespaceDefaults++
		}
	}
	return singleDefault(k.Name, of)
}

func singleDefault(claimKind string, of map[inventory.Seat][]*inventory.Class) metav1.Condition {
	var crowded []inventory.Seat
	var cordoned []*inventory.Class
	for _, seat := range slices.SortedFunc(maps.Keys(of), inventory.Seat.Compare) { // That of all comes first.
		if classes := of[seat]; len(classes) > 1 {
			crowded = append(crowded, seat)
		} else if classes[0].Cordoned {
			cordoned = append(cordoned, classes[0])
		}
	}
	c := met(v1beta1.ConditionSingleDefault, v1beta1.ReasonOneDefault, "a claim without a selector gets the default class")
	switch {
	case len(crowded) > 0:
		seat := crowded[0]
		c = failed(c, v1beta1.ReasonSeveralDefaults, "a claim%s without a selector gets one of %d classes; leave the mark on one of %s",
			seat.In(), len(of[seat]), named(of[seat]))
		if more := len(crowded) - 1; more > 0 {
			c.Message += fmt.Sprintf("; so it is in %d more namespaces or partitions", more)
		}
	case len(cordoned) > 0:
		c.Reason = v1beta1.ReasonDefaultCordoned
		c.Message = fmt.Sprintf("no claim gets the default class %s, which is cordoned: %s",
			named(cordoned), cordoned[0].Uncordon(claimKind))
	case len(of) == 0:
		c.Reason, c.Message = v1beta1.ReasonNoDefault, "a claim without a selector finds no class"
	case len(of[inventory.Seat{ClaimKind: claimKind}]) == 0:
		c.Message += " of its namespace or partition, if that has one"
	}
	return c
}

// named lists a few of the classes, and says how many more there are.
func named(classes []*inventory.Class) string {
	return selector.ListFunc(classes, (*inventory.Class).String)
}
