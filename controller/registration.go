// Package controller runs in the background: on every replica, the registration of
// kinds and the watches of their classes; on the leader alone, the webhook
// configuration, the status of registrations, and late binding.
package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

const (
	// retryAfter is the delay before a resource that is not installed is looked up
	// again: one of an aggregated API server has no CRD whose events would tell.
	retryAfter = 15 * time.Second
	// retryCRDAfter is the same where a CRD says that the API server is about to start
	// or to stop serving the resource.
	retryCRDAfter = time.Second
	// lookUpTimeout limits the few requests that look up one resource.
	lookUpTimeout = 3 * time.Second
	// maxLookUps is how many kinds are looked up at once, so that a vendor's API server
	// that does not answer holds up no other kinds: 300 take 28 s.
	maxLookUps = 32
)

// errCRDNotServed says that a CRD is installed but its resource is not found. The API
// server starts to serve a new CRD, or a new version of one, a moment later.
var errCRDNotServed = errors.New("its CRD is installed, but the API server does not serve the resource")

// Registration fills the inventory from the registrations. It starts to watch a class
// kind when its ClassKind appears or its resource gets installed, and stops when either
// goes. It runs on every replica.
type Registration struct {
	Inventory *selector.Inventory

	reader   client.Reader // from the cache
	api      client.Reader // from the API server itself
	resolver resolver
	classes  *classClient
	reads    *reads
	gets     gets
	// deleted has the names of the claim kinds that this replica saw deleted.
	deleted sync.Map

	mu      sync.Mutex
	kinds   map[string]*registered
	opened  chan struct{}
	tallies map[string]*selector.Tally

	// changed listen for class kinds whose classes changed, and requeued for the names
	// of class kinds to be reconciled again.
	changed  listeners[*selector.ClassKind]
	requeued listeners[string]
}

// NewRegistration reads registrations from a cache, and classes from the API server. live
// reads registrations from the API server itself.
func NewRegistration(config *rest.Config, cache, live client.Reader) (*Registration, error) {
	classes, err := newClassClient(config)
	if err != nil {
		return nil, err
	}
	resolver, err := newResolver(config)
	if err != nil {
		return nil, err
	}
	r := &Registration{
		Inventory: selector.NewInventory(), reader: cache, api: live,
		resolver: resolver, classes: classes, kinds: map[string]*registered{}, opened: make(chan struct{}),
		gets: newGets(),
	}
	r.reads = newReads(r.read)
	return r, nil
}

// SetupWithManager adds the two controllers, for claim kinds and for class kinds, and the
// loops that open the inventory and forget claims in flight.
func (r *Registration) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("claimkind-registration").
		WithOptions(controller.Options{NeedLeaderElection: new(false)}).
		For(&v1alpha1.ClaimKind{}, revisionChanged).
		Complete(byName(r.reconcileClaimKind))
	if err != nil {
		return fmt.Errorf("cannot set up the registration of claim kinds: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("classkind-registration").
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: maxLookUps}).
		For(&v1alpha1.ClassKind{}, revisionChanged).
		WatchesMetadata(CRD(), &handler.EnqueueRequestForObject{}).
		WatchesRawSource(requestsFrom(r.requeued.add, 0)).
		Complete(byName(r.reconcileClassKind))
	if err != nil {
		return fmt.Errorf("cannot set up the registration of class kinds: %w", err)
	}
	return errors.Join(
		mgr.Add(everywhere(manager.RunnableFunc(r.openWhenComplete))),
		mgr.Add(everywhere(manager.RunnableFunc(r.expireInFlight))))
}

// OnChange calls a function with each class kind whose state or classes changed, until
// the context ends.
func (r *Registration) OnChange(ctx context.Context, call func(*selector.ClassKind)) {
	r.changed.add(ctx, call)
}

func (r *Registration) reconcileClaimKind(ctx context.Context, name string) (ctrl.Result, error) {
	k := &v1alpha1.ClaimKind{}
	err := r.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	switch {
	case apierrors.IsNotFound(err):
		r.deleted.Store(name, nil)
		r.Inventory.DeleteClaimKind(name)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("cannot get claim kind %q: %w", name, err)
	default:
		r.deleted.Delete(name)
		kind := selector.NewClaimKind(k)
		if kind.Strategy.Counted {
			kind.Tally = r.tally(name)
		}
		r.Inventory.SetClaimKind(kind)
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
	found, err := r.lookUp(ctx, name, "list", "watch")
	switch {
	case errors.Is(err, errNotInstalled), errors.Is(err, errUnsuitable):
		r.withdraw(name, err)
		return ctrl.Result{RequeueAfter: retryAfter}, nil
	case errors.Is(err, errCRDNotServed):
		r.unanswered(name, err)
		return ctrl.Result{RequeueAfter: retryCRDAfter}, nil
	case err != nil:
		r.unanswered(name, err)
		return ctrl.Result{}, err
	}
	if r.follow(ctx, k, found) {
		return ctrl.Result{}, nil
	}
	// The API server lists the resource and answers its watch with 404: one of the two
	// is about to change.
	return ctrl.Result{RequeueAfter: retryCRDAfter}, nil
}

// lookUp resolves a registered resource. It returns errNotInstalled only if there is no
// CRD either.
func (r *Registration) lookUp(ctx context.Context, name string, verbs ...string) (resource, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	found, err := r.resolver.resolve(ctx, name, verbs...)
	if !errors.Is(err, errNotInstalled) {
		return found, err
	}
	switch crdErr := r.reader.Get(ctx, client.ObjectKey{Name: name}, CRD()); {
	case crdErr == nil:
		return resource{}, errCRDNotServed
	case apierrors.IsNotFound(crdErr):
		return resource{}, err
	default:
		return resource{}, fmt.Errorf("cannot get the CRD of %q: %w", name, crdErr)
	}
}

// reasonFor is the reason of a condition for an error of lookUp.
func reasonFor(err error) string {
	switch {
	case errors.Is(err, errNotInstalled):
		return v1alpha1.ReasonNotInstalled
	case errors.Is(err, errUnsuitable):
		return v1alpha1.ReasonUnsuitable
	}
	return v1alpha1.ReasonNotSynced
}
