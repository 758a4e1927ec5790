// Package controller is what runs in the background: the registration of kinds
// and the watches of their classes, on every replica; and the webhook
// configuration and the status of registrations, on the leader alone.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

const (
	// retryAfter is how soon a resource that is not installed is asked for
	// again: one of an aggregated API server has no CRD whose events would tell.
	retryAfter = 15 * time.Second
	// retryCRDAfter is the same where a CRD says that the API server is about to
	// serve the resource, or to serve it no more.
	retryCRDAfter = time.Second
	// lookUpTimeout is for the few requests that look up one resource.
	lookUpTimeout = 3 * time.Second
	// lookUps is how many kinds are looked up at once, so that those of a vendor whose
	// API server does not answer keep no others waiting: 300 take 28 s.
	lookUps = 32
)

// errNotServed says that a CRD is installed, and its resource not to be found:
// the API server begins to serve a CRD, and a version of one, a moment later.
var errNotServed = errors.New("its CRD is installed, but the API server does not serve the resource")

// Registration fills the inventory from what is registered: it starts to watch
// a class kind when its ClassKind appears or its resource gets installed, and
// stops when either goes. It runs on every replica.
type Registration struct {
	Inventory *selector.Inventory

	reader   client.Reader // from the cache
	api      client.Reader // from the API server itself
	resolver resolver
	classes  *classClient
	reads    *reads
	gets     gets
	// deleted has the names of claim kinds that were registered here, and are no more.
	deleted sync.Map

	mu      sync.Mutex
	kinds   map[string]*registered
	changed []listener
	opened  chan struct{}
	tallies map[string]*selector.Tally
	// again has a class kind looked up again.
	again func(classKind string)
}

// NewRegistration of the kinds that the manager's API server knows.
func NewRegistration(mgr ctrl.Manager) (*Registration, error) {
	classes, err := newClassClient(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	resolver, err := newResolver(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	r := &Registration{
		Inventory: selector.NewInventory(), reader: mgr.GetClient(), api: mgr.GetAPIReader(),
		resolver: resolver, classes: classes, kinds: map[string]*registered{}, opened: make(chan struct{}),
		again: func(string) {}, gets: newGets(),
	}
	r.reads = newReads(r.read)
	return r, nil
}

// CRD is what is watched of CustomResourceDefinitions: that there is a change.
func CRD() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return o
}

// revisionChanged leaves out updates of status and metadata, but not those in
// which an object that was deleted and created again takes the place of another.
var revisionChanged = builder.WithPredicates(revisionPredicate)

var revisionPredicate = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
}}

// SetupWithManager adds the two controllers, for claim kinds and for class kinds.
func (r *Registration) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("claimkind-registration").
		WithOptions(controller.Options{NeedLeaderElection: new(false)}).
		For(&v1alpha1.ClaimKind{}, revisionChanged).
		Complete(byName(r.reconcileClaimKind))
	if err != nil {
		return fmt.Errorf("cannot set up the registration of claim kinds: %w", err)
	}
	again := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.again = func(name string) { queue.Add(ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}) }
		return nil
	})
	err = ctrl.NewControllerManagedBy(mgr).Named("classkind-registration").
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: lookUps}).
		For(&v1alpha1.ClassKind{}, revisionChanged).
		WatchesMetadata(CRD(), &handler.EnqueueRequestForObject{}).
		WatchesRawSource(again).
		Complete(byName(r.reconcileClassKind))
	if err != nil {
		return fmt.Errorf("cannot set up the registration of class kinds: %w", err)
	}
	return mgr.Add(everywhere{manager.RunnableFunc(r.openWhenComplete)})
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
		r.leave(name, err)
		return ctrl.Result{RequeueAfter: retryAfter}, nil
	case errors.Is(err, errNotServed):
		r.unanswered(name, err)
		return ctrl.Result{RequeueAfter: retryCRDAfter}, nil
	case err != nil:
		r.unanswered(name, err)
		return ctrl.Result{}, err
	}
	if r.follow(ctx, k, found) {
		return ctrl.Result{}, nil
	}
	// The API server says that it serves the resource and answers that there is
	// none: one of the two is about to change.
	return ctrl.Result{RequeueAfter: retryCRDAfter}, nil
}

// lookUp a registered resource. Only where there is no CRD for it is it final
// that the API server does not serve it.
func (r *Registration) lookUp(ctx context.Context, name string, verbs ...string) (resource, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	found, err := r.resolver.resolve(ctx, name, verbs...)
	if !errors.Is(err, errNotInstalled) {
		return found, err
	}
	switch crdErr := r.reader.Get(ctx, client.ObjectKey{Name: name}, CRD()); {
	case crdErr == nil:
		return resource{}, errNotServed
	case apierrors.IsNotFound(crdErr):
		return resource{}, err
	default:
		return resource{}, fmt.Errorf("cannot get the CRD of %q: %w", name, crdErr)
	}
}

// listener is called with each class kind of which something changed, until its
// context ends, as the leader's does when it loses its Lease.
type listener struct {
	ctx  context.Context
	call func(classKind *selector.ClassKind)
}

func (r *Registration) onChange(ctx context.Context, call func(*selector.ClassKind)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = append(r.changed, listener{ctx, call})
}

func (r *Registration) notify(kind *selector.ClassKind) {
	r.mu.Lock()
	r.changed = slices.DeleteFunc(slices.Clone(r.changed), func(l listener) bool { return l.ctx.Err() != nil })
	changed := r.changed // Cloned for each change, never written.
	r.mu.Unlock()
	for _, l := range changed {
		l.call(kind)
	}
}

// everywhere runs something on every replica, leader or not.
type everywhere struct{ manager.Runnable }

// NeedLeaderElection is asked by the manager.
func (everywhere) NeedLeaderElection() bool { return false }

// byName reconciles cluster-scoped objects.
func byName(f func(context.Context, string) (ctrl.Result, error)) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		return f(ctx, request.Name)
	})
}
