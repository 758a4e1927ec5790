// Package latebinding watches claims. It counts those that are bound, by class, and on the
// leader it binds those that had to wait for a class.
package latebinding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// Claims watches the claims of kinds that need it: see selector.WatchesClaims. It runs on every replica: each knows how many claims have a
// class, and a new leader knows at once which claims wait.
type Claims struct {
	Metrics *Metrics // of the watched claims

	registration *registry.Registration
	reader       client.Reader // from the cache
	client       Client
	own          string // classbind's namespace

	// mu guards kinds, because reconciliations of several kinds run at once. A goroutine that
	// holds it copies or sets an entry, and never waits.
	mu    sync.Mutex
	kinds map[string]*watchedClaims
	// began is when Ready was first called. counted reports whether the claims have been counted.
	began   atomic.Pointer[time.Time]
	counted atomic.Bool

	// changed listen for the names of claim kinds whose claims changed, and requeued for those of kinds to be reconciled again.
	changed, requeued loop.Listeners[string]
}

// watchedClaims has the watch of a kind's claims, or the reason why there is none.
type watchedClaims struct {
	watch *claimWatch
	err   error
}

// NewClaims returns Claims for the registered kinds, which it reads from a cache. own is
// classbind's namespace.
func NewClaims(r *registry.Registration, cache client.Reader, config *rest.Config, own string) (*Claims, error) {
	client, err := NewClient(config)
	if err != nil {
		return nil, err
	}
	client.once = true // A claim that was not written goes back to its queue, and holds up no other.
	c := &Claims{registration: r, reader: cache, client: client, own: own, kinds: map[string]*watchedClaims{}}
	c.Metrics = NewMetrics(c)
	return c, nil
}

// SetupWithManager adds the controller of the watches.
func (c *Claims) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("claims").
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: registry.MaxLookUps}).
		For(&v1beta1.ClaimKind{}, loop.RevisionChanged).
		WatchesMetadata(cluster.CRD(), registry.ClaimKindsOfCRD(c.reader)).
		WatchesRawSource(loop.RequestsFrom(c.requeued.Add, 0)).
		WatchesRawSource(loop.RequestsFrom(c.registration.OnRegistered, 0)).
		Complete(loop.ByName(c.reconcile))
	if err = errors.Join(err, mgr.Add(loop.Everywhere(manager.RunnableFunc(c.recountAll)))); err != nil {
		return fmt.Errorf("cannot set up the watches of claims: %w", err)
	}
	return nil
}

func (c *Claims) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	k, kind := &v1beta1.ClaimKind{}, c.registration.Inventory.ClaimKind(name)
	err := c.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	gone := apierrors.IsNotFound(err)
	switch {
	case err != nil && !gone:
		return ctrl.Result{}, fmt.Errorf("cannot get claim kind %q: %w", name, err)
	case !gone && (kind == nil || kind.Revision != inventory.RevisionOf(k)):
		return ctrl.Result{}, nil // It is about to be registered, and comes here again.
	case gone || !kind.Watched:
		c.drop(name)
		return ctrl.Result{}, nil
	}
	verbs := []string{"list", "watch"}
	later := k.Spec.WhenUnmatched == v1beta1.BindLater
	if later {
		verbs = append(verbs, "patch")
	}
	found, err := c.registration.LookUpClaims(ctx, k, verbs...)
	var unwritable error
	if later && errors.Is(err, cluster.ErrUnsuitable) {
		// Claims that cannot be written can still be counted.
		unwritable = err
		found, err = c.registration.LookUpClaims(ctx, k, "list", "watch")
	}
	result, err := registry.Followed{
		Withdraw: func(why error) {
			c.drop(name)
			c.unwatched(name, why)
		},
		Unanswered: func(why error) { c.unwatched(name, why) },
		Follow: func() (bool, error) {
			served, err := c.follow(ctx, k, kind, found)
			if w := c.watches()[name]; w != nil && err == nil {
				news := false
				w.own(func(s *claimState) { news, s.unwritable = (s.unwritable == nil) != (unwritable == nil), unwritable })
				if news {
					c.changed.Notify(name)
				}
			}
			return served, err
		},
	}.LookedUp(err)
	if result.IsZero() && err == nil && unwritable != nil { // The status says so, and the claims are still counted.
		result.RequeueAfter = registry.RetryAfter
	}
	return result, err
}

// follow watches the claims of a kind, and starts again if its registration changed.
// served is false if the API server answers the watch with 404.
func (c *Claims) follow(
	ctx context.Context, k *v1beta1.ClaimKind, kind *selector.ClaimKind, found cluster.Resource,
) (served bool, err error) {
	namespaces, err := claim.NewNamespaces(k.Spec.Claims.NamespaceSelector, c.own)
	if err != nil {
		return false, fmt.Errorf("cannot watch the claims of %q: %w", k.Name, err)
	}
	old := c.watches()[k.Name] // It is not replaced meanwhile: a kind has one reconciliation at a time.
	if old != nil && old.kind.Serial == kind.Serial && old.resource.GroupVersion() == found.GroupVersion() {
		_, err := old.LastError()
		return !apierrors.IsNotFound(err), nil
	}
	w := newClaimWatch(ctx, kind, found, namespaces, func() { c.changed.Notify(k.Name) })
	w.metrics, w.views = c.Metrics, c.registration.Inventory.Snapshot
	if old != nil {
		old.stop()
		w.before = old
	}
	c.mu.Lock()
	c.kinds[k.Name] = &watchedClaims{watch: w}
	c.mu.Unlock()
	w.start(c.client, func(err error) {
		c.changed.Notify(k.Name)
		if apierrors.IsNotFound(err) {
			c.requeued.Notify(k.Name)
		}
	})
	logf.FromContext(ctx).Info("Watching the claims of a kind", "claimKind", k.Name, "version", found.Version)
	return true, nil
}

func (c *Claims) drop(name string) {
	c.mu.Lock()
	old := c.kinds[name]
	delete(c.kinds, name)
	c.mu.Unlock()
	if old != nil {
		old.watch.withdraw()
		c.changed.Notify(name)
	}
}

// unwatched records why a kind has no watch. An existing watch stays.
func (c *Claims) unwatched(name string, why error) {
	c.mu.Lock()
	if old := c.kinds[name]; old == nil || old.watch == nil {
		c.kinds[name] = &watchedClaims{err: why}
	}
	c.mu.Unlock()
	c.changed.Notify(name)
}

// CountsOf returns the claims of one kind, if they are known.
func (c *Claims) CountsOf(claimKind string) (counts ClaimCounts, known bool) {
	if w := c.watches()[claimKind]; w != nil {
		return w.counts()
	}
	return counts, false
}

// OnChange calls a function with the name of each claim kind whose claims changed, until the context ends.
func (c *Claims) OnChange(ctx context.Context, call func(claimKind string)) { c.changed.Add(ctx, call) }

func (c *Claims) watches() map[string]*claimWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	watches := map[string]*claimWatch{}
	for name, k := range c.kinds {
		if k.watch != nil {
			watches[name] = k.watch
		}
	}
	return watches
}

func (c *Claims) lateWatches() (later []*claimWatch) {
	watches := c.watches()
	for _, name := range slices.Sorted(maps.Keys(watches)) {
		if w := watches[name]; w.kind.BindLater {
			later = append(later, w)
		}
	}
	return later
}

// Ready returns an error until the claims of the kinds that are Counted have been counted once. Without that, a new replica would take
// every class for empty. Ready does not wait for kinds that the API server refuses or does not serve, nor for any kind longer than
// registry.RefusalGrace: one registration must not block all other claims.
func (c *Claims) Ready(now time.Time) error {
	c.began.CompareAndSwap(nil, &now)
	if c.counted.Load() || now.Sub(*c.began.Load()) >= registry.RefusalGrace {
		return nil
	}
	snapshot := c.registration.Inventory.Snapshot()
	for name, view := range snapshot {
		if err := c.Problem(name); view.Kind.Counted && NotYet(err) {
			return fmt.Errorf("the claims of %q are not counted yet: %w", name, err)
		}
	}
	c.counted.Store(snapshot != nil)
	return nil
}

var (
	errNotWatched = errors.New("they are not watched yet")
	errNoAnswer   = errors.New("the API server has not listed the claims yet")
)

// NotYet means that the watch has only just begun.
func NotYet(err error) bool { return errors.Is(err, errNoAnswer) || errors.Is(err, errNotWatched) }

// Problem is why the claims of a kind are not known, nil if they are.
func (c *Claims) Problem(name string) error {
	c.mu.Lock()
	k := c.kinds[name]
	c.mu.Unlock()
	switch {
	case k == nil:
		return errNotWatched
	case k.watch == nil:
		return k.err
	}
	if _, err := k.watch.LastError(); err != nil || k.watch.published.Load().synced {
		return err
	}
	return errNoAnswer
}

// LateProblem is why the waiting claims of a kind are not bound, nil if they are.
func (c *Claims) LateProblem(name string) error {
	if err := c.Problem(name); err != nil {
		return err
	}
	if w := c.watches()[name]; w != nil {
		return w.published.Load().late
	}
	return errNotWatched
}

// ClaimCounts are of one claim kind. None wait without BindLater. Of those that wait, so many are left, and found by sweeps.
type ClaimCounts struct{ Bound, Waiting, Left int }

// claimSummary is what others read of a watch: how it was after the last change.
type claimSummary struct {
	counts ClaimCounts
	synced bool
	binds  bool // This replica binds the waiting claims.
	late   error
}

// summary has only what is at hand, because it is made after each change. Without waiting
// claims, only unwritable is a reason why they are not bound.
func (s *claimState) summary() *claimSummary {
	late, waiting := s.unwritable, &s.waiting
	if waiting.weight > 0 || waiting.partial {
		late = cmp.Or(s.unwritable, s.refusal, s.namespaceErr, s.removed)
	}
	if waiting.refused > 0 {
		late = cmp.Or(late, s.refusedErr)
	}
	return &claimSummary{
		counts: ClaimCounts{Bound: len(s.bound.counts), Waiting: waiting.selected + waiting.left, Left: waiting.left},
		synced: s.synced, binds: s.binder != nil, late: late,
	}
}

func (w *claimWatch) counts() (c ClaimCounts, synced bool) {
	published := w.published.Load()
	return published.counts, published.synced
}
