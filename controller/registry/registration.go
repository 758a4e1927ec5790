// Package registry knows the registered kinds and their classes, on every replica. It fills the inventory from which claims are bound, says
// what keeps a class kind from being offered, and reads single objects live where that is not enough.
package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/rules"
)

// Registration fills the inventory from the registrations. It runs on every replica. Each part has what it knows, and the lock of it.
type Registration struct {
	Inventory    *selector.Inventory
	Resources    *Resources
	ClassKinds   *ClassKinds
	RelatedKinds *RelatedKinds
	Opening      *Opening
	LiveReads    *LiveReads
	Tallies      *Tallies

	// serial is the last one that a claim kind got, and registered listen for the names of those that are compiled.
	serial     atomic.Uint64
	registered loop.Listeners[string]
}

// NewRegistration reads registrations from a cache, and classes from the API server. live reads registrations from the API server itself.
func NewRegistration(config *rest.Config, cache, live client.Reader) (*Registration, error) {
	r, err := NewReader(config)
	if err != nil {
		return nil, err
	}
	return newRegistration(cache, live, r.Resolver, r.classes), nil
}

func newRegistration(cache, live client.Reader, resolver cluster.Resolver, classes *classClient) *Registration {
	i, resources := selector.NewInventory(), &Resources{cache, resolver}
	related := &RelatedKinds{
		inventory: i, resources: resources, client: classes, claimKinds: map[string]registeredClaimKind{},
		classKinds: map[string][]*inventory.ClassKind{}, related: map[rules.Key]*relatedKind{},
	}
	known := &ClassKinds{inventory: i, resources: resources, client: classes, related: related, kinds: map[string]*registered{}}
	related.release = known.release
	reads := &LiveReads{
		api: live, resources: resources, classKinds: known, related: related, client: classes,
		readLimiter: fair.NewLimiter(v1beta1.RegistrationReads), namedLimiter: fair.NewLimiter(v1beta1.NamedReads),
	}
	reads.reads = newReads(reads.readRelated)
	return &Registration{
		Inventory: i, Resources: resources, ClassKinds: known, RelatedKinds: related, Tallies: &Tallies{inventory: i},
		Opening:   &Opening{inventory: i, classKinds: known, related: related, resources: resources, opened: make(chan struct{})},
		LiveReads: reads,
	}
}

// SetupWithManager adds the controllers, and the loops that open the inventory and forget claims in flight.
func (r *Registration) SetupWithManager(mgr ctrl.Manager) error {
	// One API server that hangs while its schema is read delays no other kind.
	options := controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: MaxLookUps}
	err := ctrl.NewControllerManagedBy(mgr).Named("claimkind-registration").WithOptions(options).
		For(&v1beta1.ClaimKind{}, builder.WithPredicates(lateBindingChanged)).
		WatchesMetadata(cluster.CRD(), ClaimKindsOfCRD(r.Resources.reader)).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, loop.ForNames(r.remembered), memoryChanged).
		Watches(&v1beta1.ClassKind{}, loop.ForNames(r.claimKindsLookedAt), loop.RevisionChanged).
		Complete(loop.ByName(r.reconcileClaimKind))
	if err != nil {
		return fmt.Errorf("cannot set up the registration of claim kinds: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("classkind-registration").WithOptions(options).
		For(&v1beta1.ClassKind{}, loop.RevisionChanged).
		Watches(&v1beta1.ClaimKind{}, loop.ForNames(r.classKindsLookedAt), loop.RevisionChanged).
		WatchesMetadata(cluster.CRD(), &handler.EnqueueRequestForObject{}).
		WatchesRawSource(loop.RequestsFrom(r.ClassKinds.requeued.Add, 0)).
		Complete(loop.ByName(r.ClassKinds.reconcile))
	if err != nil {
		return fmt.Errorf("cannot set up the registration of class kinds: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("related-registration").WithOptions(options).
		WatchesMetadata(cluster.CRD(), loop.ForNames(r.RelatedKinds.ofCRD)).
		WatchesRawSource(loop.Requests(r.RelatedKinds.request)).
		Complete(loop.ByName(r.RelatedKinds.reconcile))
	if err != nil {
		return fmt.Errorf("cannot set up the watches of related objects: %w", err)
	}
	return errors.Join(
		mgr.Add(loop.Everywhere(manager.RunnableFunc(r.Opening.openWhenComplete))),
		mgr.Add(loop.Everywhere(manager.RunnableFunc(r.derive))),
		mgr.Add(loop.Everywhere(manager.RunnableFunc(r.Tallies.expireInFlight))))
}

// ClaimKindsOfCRD requests the ClaimKinds of the resource that a CRD defines.
func ClaimKindsOfCRD(registrations client.Reader) handler.EventHandler {
	return loop.ForNames(func(ctx context.Context, crd client.Object) (names []string) {
		return claimKindsThat(ctx, registrations, func(k *v1beta1.ClaimKind) bool { return k.Resource() == crd.GetName() })
	})
}

// claimKindsThat are the names of those that meet a condition. What fails here fails in the reconciliation, too.
func claimKindsThat(ctx context.Context, cache client.Reader, meet func(*v1beta1.ClaimKind) bool) (names []string) {
	kinds, _, _ := List(ctx, cache)
	for i := range kinds {
		if meet(&kinds[i]) {
			names = append(names, kinds[i].Name)
		}
	}
	return names
}

// remembered requests the ClaimKinds whose paths are written for another version than this replica took.
func (r *Registration) remembered(ctx context.Context, configuration client.Object) []string {
	memory := MemoryOf(configuration)
	return claimKindsThat(ctx, r.Resources.reader, func(k *v1beta1.ClaimKind) bool {
		version := memory.VersionOf(k)
		return version != "" && version != r.RelatedKinds.claimKind(k.Name).paths.Version
	})
}

// memoryChanged ignores updates of the configuration that do not change the Memory in it.
var memoryChanged = builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetAnnotations()[v1beta1.MemoryAnnotation] != e.ObjectNew.GetAnnotations()[v1beta1.MemoryAnnotation]
}})

// lateBindingChanged ignores updates that change neither the registration, nor whether claims can be bound later, which messages show.
var lateBindingChanged = predicate.Or(loop.RevisionPredicate, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1beta1.ClaimKind)
	after, also := e.ObjectNew.(*v1beta1.ClaimKind)
	return ok && also && selector.CannotBindLater(before) != selector.CannotBindLater(after)
}})

func (r *Registration) reconcileClaimKind(ctx context.Context, name string) (ctrl.Result, error) {
	k := &v1beta1.ClaimKind{}
	err := r.Resources.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	switch {
	case apierrors.IsNotFound(err):
		r.LiveReads.deleted.Store(name, nil)
		r.Inventory.DeleteClaimKind(name)
		r.RelatedKinds.need(name, registeredClaimKind{})
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("cannot get claim kind %q: %w", name, err)
	default:
		r.LiveReads.deleted.Delete(name)
		classKinds, err := classKindsServing(ctx, r.Resources.reader, k)
		if err != nil {
			return ctrl.Result{}, err
		}
		kind := selector.NewClaimKind(k, classKinds...)
		paths := r.ComparePaths(ctx, k, kind)
		r.register(kind, paths)
		return ctrl.Result{RequeueAfter: paths.recheckAfter()}, nil
	}
	return ctrl.Result{}, nil
}

const (
	// deriveInterval is the time between two rounds, which derive the classes that a change left for later, and have objects expire.
	// Each wakes a replica that is at rest.
	deriveInterval = 200 * time.Millisecond
	// deriveRest is how many times as long as a round took passes until the next begins: a storm of changes costs a fifth of a core.
	deriveRest = 4
)

// derive has related objects expire, and derives the weights and the capacities of classes that are due, until the context ends.
func (r *Registration) derive(ctx context.Context) error {
	var next time.Time
	recovered.Rounds(ctx, func(context.Context) {
		for _, key := range r.Inventory.Expire() {
			r.RelatedKinds.notify(key)
		}
		began := time.Now()
		if began.Before(next) {
			return
		}
		for _, kind := range r.Inventory.Derive() {
			r.ClassKinds.changed.Notify(kind)
		}
		next = time.Now().Add(deriveRest * time.Since(began))
	}, deriveInterval)
	return nil
}

// Tallies has those of all claim kinds.
type Tallies struct {
	inventory *selector.Inventory
	tallies   sync.Map // *selector.Tally by tallyKey
}

// room of a class for a claim of a namespace.
func (t *Tallies) room(namespace string, c *inventory.Class) selector.Room {
	return t.inventory.Snapshot().Room(namespace, c)
}

// Freed is another number once there may be more room in the classes of a view.
func (t *Tallies) Freed(v *selector.View) uint64 {
	return t.inventory.Snapshot().Freed(v)
}

// tallyKey is what a Tally counts for: sums of one quantity never become those of another, when a ClaimKind names other quantities.
type tallyKey struct{ claimKind, quantities string }

// Tally returns that of a claim kind, which outlives its watches and registrations.
func (t *Tallies) Tally(kind *selector.ClaimKind) *selector.Tally {
	key := tallyKey{claimKind: kind.Name}
	for _, u := range kind.Rules.Usage {
		key.quantities += string(u.Of) + ","
	}
	tally, _ := t.tallies.LoadOrStore(key, &selector.Tally{})
	return tally.(*selector.Tally) // It has nothing else.
}

// expireInFlight forgets claims in flight until the context ends.
func (t *Tallies) expireInFlight(ctx context.Context) error {
	recovered.Rounds(ctx, func(context.Context) {
		t.tallies.Range(func(_, tally any) bool {
			// A panic is logged; nothing else can fail.
			_ = recovered.Do(func() error { tally.(*selector.Tally).Expire(time.Now()); return nil }) // There is nothing else.
			return true
		})
	}, time.Second)
	return nil
}
