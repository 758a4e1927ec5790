package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// relatedKind is what is known of one RelatedKind.
type relatedKind struct {
	followed[*inventory.Objects, *expression.Object]
	// kind is what claim kinds need now, nil if none does any more.
	kind *rules.Kind
	// watched is how the API server serves the objects that are watched.
	watched keptObjects
}

// known says that the inventory has all that claim kinds need.
func (k *relatedKind) known() bool { return k.kind != nil && k.has(k.kind) }

// has says that the inventory has what one claim kind needs.
func (k *relatedKind) has(needed *rules.Kind) bool {
	return k.objects != nil && k.objects.Kind.Fields.Covers(needed.Fields.Paths()...)
}

// RelatedKinds watches the objects that the claims of registered kinds name.
type RelatedKinds struct {
	inventory *selector.Inventory
	resources *Resources
	client    *classClient

	mu sync.Mutex // guards both below
	// claimKinds are in the inventory, and related is what they need.
	claimKinds map[string]registeredClaimKind
	related    map[rules.Key]*relatedKind

	// relatedChanged listen for the names of claim kinds whose related objects became known or unknown, and relatedRequeued for the related
	// kinds to be reconciled again.
	relatedChanged, relatedRequeued loop.Listeners[string]
}

// claimKind returns a claim kind as it was registered; empty if it was not.
func (r *RelatedKinds) claimKind(name string) registeredClaimKind {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claimKinds[name]
}

// needRelated has the related objects of a claim kind watched, and those that none needs any more not. A claim kind that is gone is empty.
func (r *RelatedKinds) needRelated(name string, k registeredClaimKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.kind != nil {
		r.claimKinds[name] = k
	} else {
		delete(r.claimKinds, name)
	}
	var kinds []*selector.ClaimKind
	for _, k := range r.claimKinds {
		kinds = append(kinds, k.kind)
	}
	needed := map[rules.Key]*rules.Kind{}
	for _, k := range selector.UnionRelated(kinds...) {
		needed[k.Key()] = k
		if r.related[k.Key()] == nil {
			r.related[k.Key()] = &relatedKind{followed: followed[*inventory.Objects, *expression.Object]{err: errNotLookedUp}}
		}
	}
	for key, has := range r.related {
		needs := needed[key]
		if has.kind == nil && needs == nil || has.kind != nil && needs != nil && has.kind.Same(needs) {
			continue
		}
		has.kind = needs
		r.relatedRequeued.Notify(key.String())
	}
}

var errNotLookedUp = errors.New("not looked up yet")

// requestRelated is the source of reconciliations of related kinds.
func (r *RelatedKinds) requestRelated(ctx context.Context, request func(key string, after time.Duration)) {
	r.relatedRequeued.Add(ctx, func(key string) { request(key, 0) })
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.related { // They may have been needed before.
		request(key.String(), 0)
	}
}

// relatedOfCRD requests the related kinds that a CRD defines.
func (r *RelatedKinds) relatedOfCRD(_ context.Context, crd client.Object) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.related {
		if key.Resource == crd.GetName() {
			names = append(names, key.String())
		}
	}
	return names
}

func (r *RelatedKinds) reconcileRelated(ctx context.Context, name string) (ctrl.Result, error) {
	resource, version, _ := strings.Cut(name, "/")
	key := rules.Key{Resource: resource, Version: version}
	if r.dropRelated(key) {
		return ctrl.Result{}, nil
	}
	found, err := r.resources.lookUp(ctx, resource, version, "list", "watch")
	return Followed{
		Withdraw: func(why error) {
			r.withdrawRelated(key, relatedErr(version, why))
		},
		Unanswered: func(why error) { r.relatedUnanswered(key, why) },
		Follow:     func() (bool, error) { return r.followRelated(ctx, key, found), nil },
	}.LookedUp(err)
}

var errRelatedVersion = errors.New("the API server does not serve this version")

// relatedErr is the error of a look-up for who wrote the related objects of a ClaimKind.
func relatedErr(version string, err error) error {
	if errors.Is(err, cluster.ErrVersionNotServed) {
		const way = "set the version in spec.classes.related to one that is served, or leave it out"
		return fmt.Errorf("%w, %q: "+way, errRelatedVersion, version)
	}
	return err
}

// unwatchedRelated is a kind whose objects are not watched. If the API server serves the resource in no way, there are none.
func unwatchedRelated(kind *rules.Kind, why error, since time.Time) *relatedKind {
	k := &relatedKind{kind: kind, followed: followed[*inventory.Objects, *expression.Object]{err: why, since: since}}
	if errors.Is(why, cluster.ErrNotInstalled) {
		k.objects = inventory.NewObjects(kind, false, nil)
	}
	return k
}

// dropRelated forgets a kind that no claim kind needs. It is false if one does.
func (r *RelatedKinds) dropRelated(key rules.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.related[key]
	if old != nil && old.kind != nil {
		return false
	}
	if old != nil {
		old.stop()
	}
	delete(r.related, key)
	r.inventory.DeleteRelated(key)
	return true
}

// withdrawRelated stops the watch of a kind that the API server does not serve. If it serves the resource in no way, there are no objects.
// Else nobody knows them.
func (r *RelatedKinds) withdrawRelated(key rules.Key, why error) {
	defer r.notifyRelated(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.related[key]
	if old == nil || old.kind == nil {
		return
	}
	old.stop()
	entry := unwatchedRelated(old.kind, why, old.sinceOf(why))
	r.related[key] = entry
	if entry.objects != nil {
		if !old.known() || old.objects.Len() > 0 {
			r.inventory.SetRelated(entry.objects)
		}
		return
	}
	if old.objects != nil {
		r.inventory.DeleteRelated(key)
	}
	r.inventory.SetRelatedMissing(key, why.Error())
}

// relatedUnanswered records that the API server did not say what it serves. An existing watch stays, and so do the last known objects.
func (r *RelatedKinds) relatedUnanswered(key rules.Key, why error) {
	defer r.notifyRelated(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.related[key]; k != nil && k.watch == nil {
		k.err, k.since = why, k.sinceOf(why)
		r.inventory.SetRelatedMissing(key, why.Error())
	}
}

// followRelated watches the objects of a kind, and starts again if other fields are needed. It is false if the API server answers the watch
// with 404.
func (r *RelatedKinds) followRelated(ctx context.Context, key rules.Key, found cluster.Resource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.related[key]
	if old == nil || old.kind == nil {
		return true // The next reconciliation drops it.
	}
	if old.watch != nil && old.watched.served == found && old.watched.kind.Same(old.kind) {
		return old.served()
	}
	old.stop()
	entry := &relatedKind{
		kind: old.kind, watched: newKeptObjects(old.kind, found),
		followed: followed[*inventory.Objects, *expression.Object]{objects: old.objects},
	}
	r.related[key] = entry
	entry.watch = &relatedWatch{
		name: key.String(), kept: entry.watched, objects: inventory.NewObjects(entry.kind, found.Namespaced, nil),
		publish: func(objects *inventory.Objects, _ *seen[*expression.Object]) { r.publishRelated(entry, objects) },
	}
	entry.watch.start(ctx, r.client, func(err error) { r.relatedAnswered(entry, key, err) })
	logf.FromContext(ctx).Info("Watching objects that claims name",
		"resource", key.Resource, "version", found.Version, "metadataOnly", entry.kind.MetadataOnly())
	return true
}

// publishRelated puts objects into the inventory, unless their watch has been replaced.
func (r *RelatedKinds) publishRelated(from *relatedKind, objects *inventory.Objects) {
	key := objects.Kind.Key()
	if r.putRelated(from, key, objects) {
		r.notifyRelated(key)
	}
}

// putRelated reports whether the objects became known. Its caller recovers from panics, so a panic must not leave mu locked.
func (r *RelatedKinds) putRelated(from *relatedKind, key rules.Key, objects *inventory.Objects) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.related[key] != from {
		return false
	}
	isNews := from.objects == nil || from.objects.Kind != objects.Kind
	from.objects = objects
	r.inventory.SetRelated(objects)
	return isNews
}

// relatedAnswered records the API server's answer to a watch.
func (r *RelatedKinds) relatedAnswered(from *relatedKind, key rules.Key, err error) {
	defer r.notifyRelated(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.related[key] != from || err == nil:
	case apierrors.IsNotFound(err):
		r.relatedRequeued.Notify(key.String())
	case !from.known():
		r.inventory.SetRelatedMissing(key, whyRefused(err, permitRelated))
	}
}

// notifyRelated tells that the state of a related kind changed.
func (r *RelatedKinds) notifyRelated(key rules.Key) {
	r.mu.Lock()
	claimKinds := maps.Clone(r.claimKinds)
	r.mu.Unlock()
	for name, k := range claimKinds {
		if slices.ContainsFunc(k.kind.RelatedKinds(), func(needed *rules.Kind) bool { return needed.Key() == key }) {
			r.relatedChanged.Notify(name)
		}
	}
}

// OnRelatedChange calls a function with the name of each claim kind whose RelatedState changed, until the context ends.
func (r *RelatedKinds) OnRelatedChange(ctx context.Context, call func(claimKind string)) {
	r.relatedChanged.Add(ctx, call)
}
