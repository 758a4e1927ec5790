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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

const (
	// retryAfter is how soon a resource that is not installed is asked for
	// again: one of an aggregated API server has no CRD whose events would tell.
	retryAfter = 15 * time.Second
	// retryCRDAfter is the same while its CRD exists already: the API server
	// serves it a moment after the CRD is stored.
	retryCRDAfter = time.Second
)

// Registration fills the inventory from what is registered: it starts to watch
// a class kind when its ClassKind appears or its resource gets installed, and
// stops when either goes. It runs on every replica.
type Registration struct {
	Inventory *selector.Inventory

	reader   client.Reader
	resolver resolver
	classes  *classClient
	reads    reads

	mu      sync.Mutex
	open    bool
	kinds   map[string]*registered
	changed []func(classKind *selector.ClassKind)
	opened  []func()
}

// registered is what is known of one ClassKind. A watch whose registration
// changed is replaced at once, but what it published stays until the new one
// has synced.
type registered struct {
	generation int64
	resource   resource
	watch      *watch
	// err is why there is no watch.
	err error
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
	return &Registration{
		Inventory: selector.NewInventory(), reader: mgr.GetClient(),
		resolver: resolver, classes: classes, kinds: map[string]*registered{},
		reads: reads{next: map[readKey]*sharedRead{}, busy: map[readKey]bool{}},
	}, nil
}

// CRD is what is watched of CustomResourceDefinitions: that there is a change.
func CRD() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return o
}

// SetupWithManager adds the two controllers, for claim kinds and for class kinds.
func (r *Registration) SetupWithManager(mgr ctrl.Manager) error {
	onAll := controller.Options{NeedLeaderElection: new(false)}
	err := ctrl.NewControllerManagedBy(mgr).Named("claimkind-registration").WithOptions(onAll).
		For(&v1alpha1.ClaimKind{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(byName(r.reconcileClaimKind))
	if err != nil {
		return fmt.Errorf("cannot set up the registration of claim kinds: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("classkind-registration").WithOptions(onAll).
		For(&v1alpha1.ClassKind{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(CRD(), &handler.EnqueueRequestForObject{}).
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
		r.Inventory.DeleteClaimKind(name)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("cannot get claim kind %q: %w", name, err)
	default:
		r.Inventory.SetClaimKind(selector.NewClaimKind(k))
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

	found, err := r.resolver.resolve(ctx, name, "list", "watch")
	if errors.Is(err, errNotInstalled) || errors.Is(err, errUnsuitable) {
		r.leave(name, err)
		after := retryAfter
		if r.reader.Get(ctx, client.ObjectKey{Name: name}, CRD()) == nil {
			after = retryCRDAfter
		}
		return ctrl.Result{RequeueAfter: after}, nil
	}
	if err != nil {
		r.unanswered(name, err)
		return ctrl.Result{}, err
	}
	r.follow(ctx, k, found)
	return ctrl.Result{}, nil
}

// follow watches the classes of a kind, anew if its registration changed.
func (r *Registration) follow(ctx context.Context, k *v1alpha1.ClassKind, found resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.kinds[k.Name]
	if old != nil && old.watch != nil {
		if old.generation == k.Generation && old.resource == found {
			return
		}
		old.watch.stop()
	}
	kind := selector.NewClassKind(k, found.GroupVersionKind, found.namespaced)
	entry := &registered{generation: k.Generation, resource: found}
	r.kinds[k.Name] = entry
	entry.watch = startWatch(context.WithoutCancel(ctx), r.classes, kind, func(x *selector.Index) { r.publish(entry, x) }, func() { r.notify(kind) })
	logf.FromContext(ctx).Info("Watching the classes of a kind", "classKind", k.Name, "version", found.Version, "metadataOnly", kind.MetadataOnly())
}

// publish puts an index into the inventory, unless its watch has been replaced.
func (r *Registration) publish(from *registered, x *selector.Index) {
	r.mu.Lock()
	current := r.kinds[x.Kind.Name] == from
	if current {
		r.Inventory.SetClasses(x)
	}
	r.mu.Unlock()
	if current {
		r.notify(x.Kind)
	}
}

// leave takes the classes of a kind out, because the API server says that there are none.
func (r *Registration) leave(name string, why error) {
	r.mu.Lock()
	old := r.kinds[name]
	r.kinds[name] = &registered{err: why}
	r.mu.Unlock()
	if old == nil || old.watch != nil || old.err.Error() != why.Error() {
		r.remove(name, old)
	}
}

// drop forgets a class kind that is not registered any more.
func (r *Registration) drop(name string) {
	r.mu.Lock()
	old := r.kinds[name]
	delete(r.kinds, name)
	r.mu.Unlock()
	r.remove(name, old)
}

func (r *Registration) remove(name string, old *registered) {
	kind := &selector.ClassKind{Name: name}
	if old != nil && old.watch != nil {
		old.watch.stop()
		kind = old.watch.kind
	}
	r.Inventory.DeleteClasses(name)
	r.notify(kind)
}

// unanswered records that the API server did not say what it serves: what is
// watched stays as it is.
func (r *Registration) unanswered(name string, why error) {
	r.mu.Lock()
	if r.kinds[name] == nil {
		r.kinds[name] = &registered{err: why}
	}
	r.mu.Unlock()
}

// onChange has a function called with a class kind of which something changed.
func (r *Registration) onChange(f func(*selector.ClassKind)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = append(r.changed, f)
}

// onOpen has a function called when the inventory is opened, or now if it is open.
func (r *Registration) onOpen(f func()) {
	r.mu.Lock()
	open := r.open
	if !open {
		r.opened = append(r.opened, f)
	}
	r.mu.Unlock()
	if open {
		f()
	}
}

func (r *Registration) notify(kind *selector.ClassKind) {
	r.mu.Lock()
	changed := slices.Clone(r.changed)
	r.mu.Unlock()
	for _, f := range changed {
		f(kind)
	}
}

// openWhenComplete opens the inventory once nothing that is registered is
// missing from it.
func (r *Registration) openWhenComplete(ctx context.Context) error {
	log := logf.FromContext(ctx)
	before := ""
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		missing := r.missing(ctx)
		if missing != nil && missing.Error() != before {
			before = missing.Error()
			log.Info("Not ready yet", "because", before)
		}
		return missing == nil, nil
	})
	if err != nil {
		return nil //nolint:nilerr // The only error is that the process is to stop.
	}
	r.mu.Lock()
	r.open = true
	opened := r.opened
	r.Inventory.Open()
	r.mu.Unlock()
	log.Info("Ready to bind claims")
	for _, f := range opened {
		f()
	}
	<-ctx.Done()
	return nil
}

// Ready is an error until the inventory is open.
func (r *Registration) Ready(ctx context.Context) error {
	if r.Inventory.Snapshot() != nil {
		return nil
	}
	if err := r.missing(ctx); err != nil {
		return err
	}
	return errors.New("all that is registered is known, and is about to be used")
}

// missing says what of all that is registered is not in the inventory yet. A
// class kind is waited for if its status says that peers or predecessors served
// it, so that a restart never narrows the view, unless the API server has said
// that it serves the resource no more, or not to us.
func (r *Registration) missing(ctx context.Context) error {
	claimKinds, classKinds := &v1alpha1.ClaimKindList{}, &v1alpha1.ClassKindList{}
	if err := r.reader.List(ctx, claimKinds); err != nil {
		return fmt.Errorf("cannot list claim kinds: %w", err)
	}
	if err := r.reader.List(ctx, classKinds); err != nil {
		return fmt.Errorf("cannot list class kinds: %w", err)
	}
	for i := range claimKinds.Items {
		if name := claimKinds.Items[i].Name; !r.Inventory.HasClaimKind(name) {
			return fmt.Errorf("claim kind %q is not registered yet", name)
		}
	}
	for i := range classKinds.Items {
		k := &classKinds.Items[i]
		s := r.state(k.Name)
		if s.reason == v1alpha1.ReasonNotSynced && meta.IsStatusConditionTrue(k.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("the classes of %q, which were offered before, are not listed yet: %s", k.Name, s.message)
		}
	}
	return nil
}

// state of a class kind: a reason of its Ready condition, the message, and the
// index that is offered, if any.
type state struct {
	reason, message string
	index           *selector.Index
}

func (r *Registration) state(name string) state {
	r.mu.Lock()
	k := r.kinds[name]
	r.mu.Unlock()
	if k == nil {
		return state{reason: v1alpha1.ReasonNotSynced, message: "not looked up yet"}
	}
	if k.watch == nil {
		return state{reason: reasonFor(k.err), message: k.err.Error()}
	}
	index, err := k.watch.state()
	switch {
	case index != nil && err != nil:
		return state{v1alpha1.ReasonStale, fmt.Sprintf("the last known classes are offered, because the API server does not list them any more: %v", err), index}
	case index != nil:
		return state{v1alpha1.ReasonServed, "the classes are offered to claims", index}
	case apierrors.IsForbidden(err):
		return state{reason: v1alpha1.ReasonNotPermitted, message: fmt.Sprintf("%v: label a ClusterRole that allows list and watch with %s=true", err, v1alpha1.AggregateLabel)}
	case err != nil:
		return state{reason: v1alpha1.ReasonNotSynced, message: err.Error()}
	}
	return state{reason: v1alpha1.ReasonNotSynced, message: "the API server has not answered yet"}
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
