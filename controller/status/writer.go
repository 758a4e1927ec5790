// Package status writes the status of registrations, for admins. It runs on the leader, and asks all other controllers what they know.
package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/chooser"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// statusDelay gathers the changes within it into one write.
const statusDelay = 200 * time.Millisecond

// repairDelay is how long what others write into a status stays, so that two who disagree do not write all the time.
const repairDelay = 5 * time.Second

// countsDelay does the same for the numbers of claims, which change more often, and
// classCountsDelay for those of class kinds: one claim kind may be served by many.
const (
	countsDelay      = time.Second
	classCountsDelay = 2 * time.Second
)

// Writer writes the status of registrations.
type Writer struct {
	Snapshot                   func() selector.Snapshot // what is known now; nil means nothing yet
	Registration               registration             // a *registry.Registration, whose parts are the next three
	ClassKinds                 classKinds
	RelatedKinds               relatedKinds
	Resources                  resources
	Claims                     claims   // a *latebinding.Claims
	ClaimEntries, ClassEntries entries  // of a webhookconfig.Configurator
	Defaults, Uses             policies // the webhookconfig.Policies of these two kinds
	Choosers                   choosers // a *chooser.Choosers
	Client                     client.Client
	Live                       client.Reader // from the API server itself

	claimTypes, classTypes typeChecks
	counted                loop.Listeners[string] // for the names of claim kinds whose claims were described
}

type (
	registration interface {
		LookUpClaims(ctx context.Context, k *v1beta1.ClaimKind, verbs ...string) (cluster.Resource, error)
		OnRegistered(ctx context.Context, call func(claimKind string))
		PathsOf(k *v1beta1.ClaimKind) (registry.Paths, bool)
		Types(ctx context.Context, registration client.Object) registry.Types
	}
	classKinds interface {
		OnChange(ctx context.Context, call func(*inventory.ClassKind))
		State(classKind string) registry.State
	}
	relatedKinds interface {
		OnRelatedChange(ctx context.Context, call func(claimKind string))
		OnClassesRelatedChange(ctx context.Context, call func(classKind string))
		RelatedState(claimKind string) registry.State
		ClassesRelatedState(classKind string) registry.State
	}
	resources interface {
		Served(ctx context.Context, k *v1beta1.ClassKind) bool
	}
)

// claims knows the watched claims.
type claims interface {
	CountsOf(claimKind string) (counts latebinding.ClaimCounts, known bool)
	OfClasses(classes *inventory.Classes) (claims int64, known, complete bool)
	Problem(claimKind string) error
	LateProblem(claimKind string) error
	OnChange(ctx context.Context, call func(claimKind string))
}

// choosers know which of them answer.
type choosers interface {
	StateOf(claimKind string) (s chooser.State, known bool)
	OnChange(ctx context.Context, call func(claimKind string))
}

// entries says what became of the entries of a webhook configuration.
type entries interface {
	Problem() string
	TooLarge(kind string) string
	Others(kind string) string
	OnChange(ctx context.Context, call func(kind string))
}

// policies says which claim kinds have a policy.
type policies interface {
	outcomes
	OnChange(ctx context.Context, call func(claimKind string))
}

// SetupWithManager adds the controllers: for each kind of registration, one that writes its status, and one that checks its expressions.
func (s *Writer) SetupWithManager(mgr ctrl.Manager) error {
	claimKinds := loop.ForNames(func(ctx context.Context, _ client.Object) (names []string) {
		all, _, _ := registry.List(ctx, s.Client) // From the cache; what fails here fails in the reconciliation, too.
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names
	})
	classKinds := loop.ForNames(func(ctx context.Context, _ client.Object) (names []string) {
		_, all, _ := registry.List(ctx, s.Client)
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names
	})
	err := errors.Join(
		s.setupTypeChecks(mgr, "claimkind-expressions", &s.claimTypes, &v1beta1.ClaimKind{}, &v1beta1.ClassKind{}, claimKinds),
		s.setupTypeChecks(mgr, "classkind-expressions", &s.classTypes, &v1beta1.ClassKind{}, &v1beta1.ClaimKind{}, classKinds))
	if err != nil {
		return err
	}
	onClassEntries := func(ctx context.Context, call func(classKind string)) {
		s.ClassEntries.OnChange(ctx, func(kind string) { call(strings.TrimSuffix(kind, v1beta1.DeletionSuffix)) })
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("classkind-status").
		For(&v1beta1.ClassKind{}, loop.RevisionChanged).
		Watches(&v1beta1.ClassKind{}, loop.RequestAfterUpdate(repairDelay)).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, classKinds).
		Watches(&v1beta1.ClaimKind{}, classKinds, loop.RevisionChanged).
		WatchesRawSource(loop.RequestsFrom(s.classTypes.changed.Add, statusDelay)).
		WatchesRawSource(s.changes(s.rivals)).
		WatchesRawSource(loop.RequestsFrom(onClassEntries, statusDelay)).
		WatchesRawSource(loop.RequestsFrom(s.RelatedKinds.OnClassesRelatedChange, statusDelay)).
		WatchesRawSource(loop.RequestsFrom(s.onClassCounts, classCountsDelay)).
		Complete(loop.ByName(s.reconcileClassKind))
	if err != nil {
		return fmt.Errorf("cannot set up the status of class kinds: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("claimkind-status").
		For(&v1beta1.ClaimKind{}, loop.RevisionChanged).
		Watches(&v1beta1.ClaimKind{}, loop.RequestAfterUpdate(repairDelay)).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, claimKinds).
		Watches(&v1beta1.ClassKind{}, claimKinds, loop.RevisionChanged).
		WatchesRawSource(loop.RequestsFrom(s.claimTypes.changed.Add, statusDelay)).
		WatchesRawSource(s.changes(func(k *inventory.ClassKind) []string { return k.ClaimKinds })).
		WatchesRawSource(loop.RequestsFrom(s.ClaimEntries.OnChange, statusDelay)).
		WatchesRawSource(loop.RequestsFrom(s.RelatedKinds.OnRelatedChange, statusDelay)).
		WatchesRawSource(loop.RequestsFrom(s.Claims.OnChange, countsDelay)).
		WatchesRawSource(loop.RequestsFrom(s.Defaults.OnChange, statusDelay)).
		WatchesRawSource(loop.RequestsFrom(s.Uses.OnChange, statusDelay)).
		WatchesRawSource(loop.RequestsFrom(s.Choosers.OnChange, statusDelay)).
		WatchesRawSource(loop.RequestsFrom(s.Registration.OnRegistered, statusDelay)).
		Complete(loop.ByName(s.reconcileClaimKind))
	if err != nil {
		return fmt.Errorf("cannot set up the status of claim kinds: %w", err)
	}
	return nil
}

func (s *Writer) changes(touched func(*inventory.ClassKind) []string) source.Source {
	return loop.Requests(func(ctx context.Context, request func(string, time.Duration)) {
		s.ClassKinds.OnChange(ctx, func(k *inventory.ClassKind) {
			for _, name := range touched(k) {
				request(name, statusDelay)
			}
		})
	})
}

func (s *Writer) reconcileClassKind(ctx context.Context, name string) (ctrl.Result, error) {
	k := &v1beta1.ClassKind{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, k); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	state := s.ClassKinds.State(name)
	served := s.Resources.Served(ctx, k)
	if state.Reason == v1beta1.ReasonServed && state.Revision != inventory.RevisionOf(k) {
		return ctrl.Result{RequeueAfter: registry.RetryCRDAfter}, nil // The watch is about to follow the new registration.
	}
	before := k.DeepCopy()
	s.countClaims(k, state.Classes)
	k.Status.Classes = 0
	ready := failed(metav1.Condition{Type: v1beta1.ConditionReady}, state.Reason, "%s", state.Message)
	if state.Classes != nil {
		k.Status.Classes = count(state.Classes.Len())
		ready.Status = metav1.ConditionTrue
	}
	registered, known, err := s.describeNamed(ctx, k, &ready)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !known {
		return ctrl.Result{RequeueAfter: statusDelay}, nil
	}
	if k.Status.Served = served; served && state.Classes == nil && state.Reason != v1beta1.ReasonIgnored {
		ready.Message += "; no claim of its claim kinds is bound until then, because its classes were offered to them before; " +
			"to bind claims without these classes until then, run: " + v1beta1.IgnoreCommand(name)
	}
	guarded, err := s.guarded(ctx, k)
	if err != nil {
		return ctrl.Result{}, err
	}
	setConditions(&k.Status.Conditions, k.Generation, append(s.classConditions(k, state.Classes),
		ready, registered, guarded, relatedKnown(s.RelatedKinds.ClassesRelatedState(name)))...)
	result := ctrl.Result{}
	if s.ClassEntries.Problem() != "" {
		result.RequeueAfter = registry.RetryAfter // No event reports when the problem passes.
	}
	return s.update(ctx, before, k, result)
}

func (s *Writer) guarded(ctx context.Context, k *v1beta1.ClassKind) (metav1.Condition, error) {
	configurations, err := webhookconfig.ReadConfigurations(ctx, s.Client, v1beta1.ClassConfiguration)
	if err != nil {
		return metav1.Condition{}, err
	}
	c := met(v1beta1.ConditionGuarded, v1beta1.ReasonConfigured, "a second default class, or a malformed weight, is refused")
	tooLarge, notDenied := s.ClassEntries.TooLarge(k.Name), s.ClassEntries.TooLarge(k.Name+v1beta1.DeletionSuffix)
	switch entry := configurations.ClassEntry(k.Name); {
	case entry == nil && tooLarge != "":
		c = failed(c, v1beta1.ReasonTooLarge, "a second default class is not refused: %s", tooLarge)
	case entry == nil:
		c = failed(c, v1beta1.ReasonNotConfigured, "the webhook configuration has no entry for it yet; it gets one once it is ready")
	case notDenied != "" && k.Spec.OnDelete.Denies():
		c = failed(c, v1beta1.ReasonTooLarge, "the deletion of a class that claims have is not refused: %s", notDenied)
	}
	addProblem(&c, s.ClassEntries, k.Name)
	return c, nil
}

// addProblem of the entries of a webhook configuration, and of those of one kind, to a condition, if there is one.
func addProblem(c *metav1.Condition, of entries, kind string) {
	if problem := of.Problem(); problem != "" {
		c.Message += "; the entries of the webhook configuration may be out of date: " + problem
	}
	if others := of.Others(kind); others != "" {
		c.Message += "; " + others
	}
}

func (s *Writer) reconcileClaimKind(ctx context.Context, name string) (ctrl.Result, error) {
	k := &v1beta1.ClaimKind{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, k); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	snapshot := s.Snapshot()
	if snapshot == nil {
		return ctrl.Result{RequeueAfter: registry.RetryCRDAfter}, nil
	}
	view := snapshot[name]
	if view == nil || view.Kind.Revision != inventory.RevisionOf(k) {
		return ctrl.Result{RequeueAfter: statusDelay}, nil // The inventory is about to be updated.
	}
	before := k.DeepCopy()
	if known, _ := s.Registration.PathsOf(k); known.Version != "" {
		k.Status.Version = known.Version
	}
	k.Status.Classes = count(view.Len())
	read, err := s.classKindsKnown(ctx, k, view)
	if err != nil {
		return ctrl.Result{}, err
	}
	ready, err := s.claimsReady(ctx, k, view)
	if err != nil {
		return ctrl.Result{}, err
	}
	builtin := builtinDefault(ctx, s.Live, k)
	late, counted := s.describeClaims(k, view.Kind.Counted, ready)
	setConditions(&k.Status.Conditions, k.Generation, ready, setDefaults(k, view), s.describePaths(k, view), read,
		s.claimExpressions(k, view), relatedKnown(s.RelatedKinds.RelatedState(name)), late, counted,
		defaulting(s.Defaults, k), use(s.Uses, k), builtin, letsClustersStart(k), s.chooserReady(k))
	s.counted.Notify(name)
	result := ctrl.Result{}
	if builtin.Type != "" || ready.Status == metav1.ConditionFalse {
		result.RequeueAfter = registry.RetryAfter
	}
	return s.update(ctx, before, k, result)
}

func (s *Writer) claimsReady(ctx context.Context, k *v1beta1.ClaimKind, view *selector.View) (ready metav1.Condition, err error) {
	configurations, err := webhookconfig.ReadConfigurations(ctx, s.Client, webhookconfig.ClaimConfigurations...)
	if err != nil {
		return ready, err
	}
	ready = met(v1beta1.ConditionReady, v1beta1.ReasonServed, "claims are bound when they are created")
	fault, e := view.Fault, configurations.ClaimEntry(k.Name)
	switch {
	case e == nil && view.Conflict != nil: // One with an entry binds claims until that of the first by name is there.
		fault = view.Conflict
	case fault != nil && e == nil:
		fault = &inventory.Fault{Reason: fault.Reason, Text: fault.Text + registry.NotEnforced}
	case fault != nil:
	case e != nil && !webhookconfig.IsOfAnyVersion(e):
		addProblem(&ready, s.ClaimEntries, k.Name)
		s.describeCheck(k, &ready)
		return ready, nil
	case s.ClaimEntries.TooLarge(k.Name) != "":
		fault = inventory.Faultf(v1beta1.ReasonTooLarge, "claims are not bound: %s", s.ClaimEntries.TooLarge(k.Name))
	default:
		if fault = registry.Unservable(ctx, s.Registration, k, view); fault == nil {
			ready = failed(ready, v1beta1.ReasonNotConfigured, "the webhook configuration has no entry for it yet")
			addProblem(&ready, s.ClaimEntries, k.Name)
			return ready, nil
		}
	}
	return failed(ready, fault.Reason, "%s", fault.Text), nil //nolint:nilerr // The condition has the fault.
}

// describeCheck says of a claim kind whose claims are bound if the API server does not ask about the classes that they name.
func (s *Writer) describeCheck(k *v1beta1.ClaimKind, ready *metav1.Condition) {
	if k.Spec.Reference.Explicit != v1beta1.CheckExplicit {
		return
	}
	if why := s.ClassEntries.TooLarge(k.Name + v1beta1.CheckSuffix); why != "" {
		*ready = failed(*ready, v1beta1.ReasonTooLarge, "claims are bound, but the classes that they name are not checked: %s", why)
	} else {
		addProblem(ready, s.ClassEntries, k.Name)
	}
}

func met(conditionType, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// failed is the condition when it is not met.
func failed(c metav1.Condition, reason, format string, args ...any) metav1.Condition {
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, fmt.Sprintf(format, args...)
	return c
}

// last is the condition of this type that was written last, by this leader or another, or zero if there is none.
func last(conditions []metav1.Condition, conditionType string) (c metav1.Condition) {
	if found := meta.FindStatusCondition(conditions, conditionType); found != nil {
		c = *found
	}
	return c
}

// setConditions makes these the only conditions of a registration: a column would show others. Those without a type do not apply, and those
// that were written before stay as they are.
func setConditions(conditions *[]metav1.Condition, generation int64, all ...metav1.Condition) {
	const longest = 32768 // of a condition's message, in the schema of metav1.Condition
	for _, c := range all {
		if c.Type != "" && c.LastTransitionTime.IsZero() {
			c.Message, c.ObservedGeneration = truncate.String(c.Message, longest), generation
			meta.SetStatusCondition(conditions, c)
		}
	}
	*conditions = slices.DeleteFunc(*conditions, func(c metav1.Condition) bool {
		return !slices.ContainsFunc(all, func(ours metav1.Condition) bool { return ours.Type == c.Type })
	})
	// A column shows the first condition that is not met: this order puts those that say why claims are not watched before all others.
	slices.SortFunc(*conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
}

// update writes a status that is not as before, with the resourceVersion that was read, so that a leader that lost its Lease unknowingly
// overwrites nothing. A conflict is not an error: the cache is about to have the next version.
func (s *Writer) update(ctx context.Context, before, now client.Object, result ctrl.Result) (ctrl.Result, error) {
	if equality.Semantic.DeepEqual(before, now) {
		return result, nil
	}
	err := s.Client.Status().Update(ctx, now, client.FieldOwner(v1beta1.FieldManager))
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: statusDelay}, nil
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("cannot write the status of %q: %w", now.GetName(), truncate.Error(err))
	}
	return result, nil
}
