// Package registry knows the registered kinds and their classes, on every replica. It fills
// the inventory from which claims are bound, says what keeps a class kind from being
// offered, and reads classes and registrations live where that is not enough.
package registry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fair"
)

const (
	// RetryAfter is the delay before a resource that is not installed is looked up
	// again: one of an aggregated API server has no CRD whose events would tell.
	RetryAfter = 15 * time.Second
	// RetryCRDAfter is the same where a CRD says that the API server is about to start
	// or to stop serving the resource.
	RetryCRDAfter = time.Second
	// LookUpTimeout limits the few requests that look up one resource.
	LookUpTimeout = 3 * time.Second
	// MaxLookUps is how many kinds are looked up at once, so that a vendor's API server
	// that does not answer holds up no other kinds: 300 take 28 s.
	MaxLookUps = 32
)

// ErrCRDNotServed says that a CRD is installed but its resource is not found. The API
// server starts to serve a new CRD, or a new version of one, a moment later.
var ErrCRDNotServed = errors.New("its CRD is installed, but the API server does not serve the resource")

// Registration fills the inventory from the registrations. It starts to watch a class
// kind when its ClassKind appears or its resource gets installed, and stops when either
// goes. It runs on every replica.
type Registration struct {
	Inventory *selector.Inventory

	reader   client.Reader // from the cache
	api      client.Reader // from the API server itself
	resolver cluster.Resolver
	classes  *classClient
	reads    *reads
	gets     *fair.Limiter
	// deleted has the names of the claim kinds that this replica saw deleted.
	deleted sync.Map

	mu      sync.Mutex
	kinds   map[string]*registered
	opened  chan struct{}
	tallies map[string]*selector.Tally
	// claimKinds are in the inventory, and related is what they need.
	claimKinds map[string]registeredClaimKind
	related    map[selector.RelatedKey]*relatedKind

	// changed listen for class kinds whose classes changed, and requeued for the names
	// of class kinds to be reconciled again.
	changed  loop.Listeners[*selector.ClassKind]
	requeued loop.Listeners[string]
	// relatedChanged listen for the names of claim kinds of which related objects became
	// known or unknown, and relatedRequeued for the related kinds to be reconciled again.
	relatedChanged, relatedRequeued loop.Listeners[string]
}

// NewRegistration reads registrations from a cache, and classes from the API server. live
// reads registrations from the API server itself.
func NewRegistration(config *rest.Config, cache, live client.Reader) (*Registration, error) {
	classes, err := newClassClient(config)
	if err != nil {
		return nil, err
	}
	resolver, err := cluster.NewResolver(config)
	if err != nil {
		return nil, err
	}
	r := &Registration{
		Inventory: selector.NewInventory(), reader: cache, api: live,
		resolver: resolver, classes: classes, kinds: map[string]*registered{}, opened: make(chan struct{}),
		gets: newGets(), claimKinds: map[string]registeredClaimKind{}, related: map[selector.RelatedKey]*relatedKind{},
	}
	r.reads = newReads(r.read)
	return r, nil
}

// SetupWithManager adds the controllers, for claim kinds, for class kinds and for what claims
// name, and the loops that open the inventory and forget claims in flight.
func (r *Registration) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("claimkind-registration").
		WithOptions(controller.Options{NeedLeaderElection: new(false)}).
		For(&v1alpha1.ClaimKind{}, FaultChanged).
		Watches(&v1alpha1.ClassKind{}, handler.EnqueueRequestsFromMapFunc(ClaimKindsLookedAt), loop.RevisionChanged).
		Complete(loop.ByName(r.reconcileClaimKind))
	if err != nil {
		return fmt.Errorf("cannot set up the registration of claim kinds: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("classkind-registration").
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: MaxLookUps}).
		For(&v1alpha1.ClassKind{}, loop.RevisionChanged).
		Watches(&v1alpha1.ClaimKind{}, handler.EnqueueRequestsFromMapFunc(r.classKindsLookedAt), loop.RevisionChanged).
		WatchesMetadata(cluster.CRD(), &handler.EnqueueRequestForObject{}).
		WatchesRawSource(loop.RequestsFrom(r.requeued.Add, 0)).
		Complete(loop.ByName(r.reconcileClassKind))
	if err != nil {
		return fmt.Errorf("cannot set up the registration of class kinds: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("related-registration").
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: MaxLookUps}).
		WatchesMetadata(cluster.CRD(), handler.EnqueueRequestsFromMapFunc(r.relatedOfCRD)).
		WatchesRawSource(loop.Requests(r.requestRelated)).
		Complete(loop.ByName(r.reconcileRelated))
	if err != nil {
		return fmt.Errorf("cannot set up the watches of related objects: %w", err)
	}
	return errors.Join(
		mgr.Add(loop.Everywhere(manager.RunnableFunc(r.openWhenComplete))),
		mgr.Add(loop.Everywhere(manager.RunnableFunc(r.expireInFlight))))
}

// ClaimKindsOfCRD requests the ClaimKinds of the resource that a CRD defines.
func ClaimKindsOfCRD(registrations client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, crd client.Object) (requests []ctrl.Request) {
		kinds := &v1alpha1.ClaimKindList{}
		_ = registrations.List(ctx, kinds) // From the cache; what fails here fails in the reconciliation, too.
		for i := range kinds.Items {
			if k := &kinds.Items[i]; k.Resource() == crd.GetName() {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(k)})
			}
		}
		return requests
	})
}

// FaultChanged ignores updates of claim kinds that change neither the registration, nor the
// version that the leader pinned, nor what it found by comparing it with the schema.
var FaultChanged = builder.WithPredicates(faultChanged)

var faultChanged = predicate.Or(loop.RevisionPredicate, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.ClaimKind)
	after, also := e.ObjectNew.(*v1alpha1.ClaimKind)
	return ok && also && !sameFault(before, after)
}})

func sameFault(before, after *v1alpha1.ClaimKind) bool {
	return before.Status.Version == after.Status.Version && before.Status.SelectorAbsent == after.Status.SelectorAbsent &&
		selector.CannotBindLater(before) == selector.CannotBindLater(after) &&
		slices.Equal(before.Status.Required, after.Status.Required) &&
		reflect.DeepEqual(selector.PathsFault(before), selector.PathsFault(after))
}

// OnChange calls a function with each class kind whose state or classes changed, until
// the context ends.
func (r *Registration) OnChange(ctx context.Context, call func(*selector.ClassKind)) {
	r.changed.Add(ctx, call)
}

func (r *Registration) reconcileClaimKind(ctx context.Context, name string) (ctrl.Result, error) {
	k := &v1alpha1.ClaimKind{}
	err := r.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	switch {
	case apierrors.IsNotFound(err):
		r.deleted.Store(name, nil)
		r.unregister(name)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("cannot get claim kind %q: %w", name, err)
	default:
		r.deleted.Delete(name)
		classKinds, err := r.ClassKindsNaming(ctx, name)
		if err != nil {
			return ctrl.Result{}, err
		}
		kind := selector.NewClaimKind(k, classKinds...)
		if kind.Strategy.Counted {
			kind.Tally = r.Tally(name)
		}
		r.register(k, kind)
	}
	return ctrl.Result{}, nil
}

func (r *Registration) reconcileClassKind(ctx context.Context, name string) (ctrl.Result, error) {
	k := &v1alpha1.ClassKind{}
	err := r.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	if apierrors.IsNotFound(err) {
		r.drop(name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot get class kind %q: %w", name, err)
	}
	found, err := r.LookUp(ctx, name, "list", "watch")
	return Followed{
		Withdraw:   func(why error) { r.withdraw(name, why) },
		Unanswered: func(why error) { r.unanswered(name, k.Spec.ClaimKinds, why) },
		Follow: func() (bool, error) {
			claimKinds, err := r.claimKindsNamedBy(ctx, k)
			if err != nil {
				return false, err
			}
			kind := selector.NewClassKind(k, found.GroupVersionKind, found.Namespaced, claimKinds...)
			if kind.Fault != nil {
				r.reject(kind, WasServed(k))
				return true, nil //nolint:nilerr // The status says so, until the registration changes.
			}
			return r.follow(ctx, kind), nil
		},
	}.LookedUp(err)
}

// Followed is a resource that is followed while the API server serves it.
type Followed struct {
	// Withdraw what is known, because the API server does not serve the resource.
	Withdraw func(why error)
	// Unanswered means that the API server did not say what it serves. What is known stays.
	Unanswered func(why error)
	// Follow the resource that was found. It is false if the API server answers the watch
	// with 404: it lists the resource, so one of the two is about to change.
	Follow func() (served bool, err error)
}

// LookedUp goes on after a look-up of the resource, and returns when to look it up again.
func (f Followed) LookedUp(err error) (ctrl.Result, error) {
	switch {
	case NotInstalledOrUnsuitable(err):
		f.Withdraw(err)
		return ctrl.Result{RequeueAfter: RetryAfter}, nil
	case errors.Is(err, ErrCRDNotServed):
		f.Unanswered(err)
		return ctrl.Result{RequeueAfter: RetryCRDAfter}, nil
	case err != nil:
		f.Unanswered(err)
		return ctrl.Result{}, err
	}
	if served, err := f.Follow(); err != nil || served {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: RetryCRDAfter}, nil
}

// LookUp resolves the resource of classes. It returns ErrNotInstalled only if there is no
// CRD either.
func (r *Registration) LookUp(ctx context.Context, classKind string, verbs ...string) (cluster.Resource, error) {
	return r.lookUp(ctx, classKind, "", verbs...)
}

// LookUpClaims does the same for the resource of claims, in the version for which their
// paths are written. It returns ErrUnsuitable, too, where no webhook can write the reference.
func (r *Registration) LookUpClaims(ctx context.Context, k *v1alpha1.ClaimKind, verbs ...string) (cluster.Resource, error) {
	if err := cluster.Suited(k); err != nil {
		return cluster.Resource{}, err
	}
	return r.lookUp(ctx, k.Resource(), k.ReadVersion(), verbs...)
}

func (r *Registration) lookUp(ctx context.Context, name, version string, verbs ...string) (cluster.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, LookUpTimeout)
	defer cancel()
	found, err := r.resolver.Resolve(ctx, name, version, verbs...)
	if !errors.Is(err, cluster.ErrNotInstalled) {
		return found, err
	}
	switch crdErr := r.reader.Get(ctx, client.ObjectKey{Name: name}, cluster.CRD()); {
	case crdErr == nil:
		return cluster.Resource{}, ErrCRDNotServed
	case apierrors.IsNotFound(crdErr):
		return cluster.Resource{}, err
	default:
		return cluster.Resource{}, fmt.Errorf("cannot get the CRD of %q: %w", name, crdErr)
	}
}

// ReasonFor is the reason of a condition for an error of LookUp, or for a fault.
func ReasonFor(err error) string {
	fault := (*selector.Fault)(nil)
	switch {
	case errors.As(err, &fault):
		return fault.Reason
	case errors.Is(err, cluster.ErrNotInstalled):
		return v1alpha1.ReasonNotInstalled
	case errors.Is(err, cluster.ErrUnsuitable):
		return v1alpha1.ReasonUnsuitable
	case errors.Is(err, cluster.ErrVersionNotServed):
		return v1alpha1.ReasonVersionNotServed
	}
	return v1alpha1.ReasonNotSynced
}
