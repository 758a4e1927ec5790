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

// relatedKind is what is known of one related kind.
type relatedKind struct {
	followed[*inventory.Objects, *expression.Object]
	// kind is what registrations need now, nil if none does.
	kind *rules.Kind
	// watched is what is watched, and how the API server serves it.
	watched keptObjects
}

// has reports whether the inventory has what one registration needs.
func (k *relatedKind) has(needed *rules.Kind) bool {
	return k.objects != nil && k.objects.Kind.Covers(needed)
}

// RelatedKinds watches the objects that the claims and the classes of registered kinds name.
type RelatedKinds struct {
	inventory *selector.Inventory
	resources *Resources
	client    *classClient

	mu sync.Mutex // guards all below
	// claimKinds are in the inventory. Of classKinds, those before are, too, while they are read again. related is what all need.
	claimKinds map[string]registeredClaimKind
	classKinds map[string][]*inventory.ClassKind
	related    map[rules.Key]*relatedKind

	// changed listen for the names of claim kinds whose RelatedState changed, ofClasses for those of class kinds, and requeued for related
	// kinds to be reconciled.
	changed, ofClasses, requeued loop.Listeners[string]
	// release the classes of a class kind that were held back until the objects that they name are known.
	release func(classKind string)
}

// claimKind returns a claim kind as it was registered; empty if it was not.
func (r *RelatedKinds) claimKind(name string) registeredClaimKind {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claimKinds[name]
}

// watchOf a related kind, nil if there is none: the API server does not serve it.
func (r *RelatedKinds) watchOf(key rules.Key) (*relatedWatch, cluster.Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.related[key]; k != nil {
		return k.watch, k.watched.served
	}
	return nil, cluster.Resource{}
}

// broken is why there may be newer objects that the classes of a kind name, nil if there are none.
func (r *RelatedKinds) broken(classKind string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.classKinds[classKind] {
		for i := range k.Related {
			if of := r.related[k.Related[i].Kind.Key()]; of != nil && of.watch != nil {
				if _, err := of.watch.LastError(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// need starts watching what a claim kind reads, and stops watching what no kind reads. A claim kind that is gone is empty.
func (r *RelatedKinds) need(name string, k registeredClaimKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claimKinds[name] = k; k.kind == nil {
		delete(r.claimKinds, name)
	}
	r.watchNeeded()
}

// needOfClasses does the same with what the classes of a kind name: of the kinds that are in the inventory, or are to be.
func (r *RelatedKinds) needOfClasses(name string, kinds ...*inventory.ClassKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.classKinds[name] = kinds; len(kinds) == 0 {
		delete(r.classKinds, name)
	}
	r.watchNeeded()
}

// watchNeeded requeues the related kinds whose needed fields changed. The caller holds mu.
func (r *RelatedKinds) watchNeeded() {
	var kinds []*rules.Kind
	for _, k := range r.claimKinds {
		kinds = append(kinds, k.kind.RelatedKinds()...)
	}
	for _, all := range r.classKinds {
		for _, k := range all {
			kinds = append(kinds, k.RelatedKinds()...)
		}
	}
	needed := map[rules.Key]*rules.Kind{}
	for _, k := range rules.Union(kinds...) {
		needed[k.Key()] = k
		if r.related[k.Key()] == nil {
			r.related[k.Key()] = unwatchedRelated(nil, errors.New("not looked up yet"), time.Time{})
		}
	}
	for key, has := range r.related {
		needs := needed[key]
		if has.kind == nil && needs == nil || has.kind != nil && needs != nil && has.kind.Same(needs) {
			continue
		}
		has.kind = needs
		r.requeued.Notify(key.String())
	}
}

// request reconciliations of related kinds: of those that are needed already, and of each that changes.
func (r *RelatedKinds) request(ctx context.Context, request func(key string, after time.Duration)) {
	r.requeued.Add(ctx, func(key string) { request(key, 0) })
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.related { // They may have been needed before.
		request(key.String(), 0)
	}
}

// ofCRD requests the related kinds that a CRD defines.
func (r *RelatedKinds) ofCRD(_ context.Context, crd client.Object) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.related {
		if key.Resource == crd.GetName() {
			names = append(names, key.String())
		}
	}
	return names
}

func (r *RelatedKinds) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	resource, version, _ := strings.Cut(name, "/")
	key := rules.Key{Resource: resource, Version: version}
	if r.drop(key) {
		return ctrl.Result{}, nil
	}
	found, err := r.resources.lookUp(ctx, resource, version, "list", "watch")
	return Followed{
		Withdraw:   func(why error) { r.withdraw(key, relatedErr(version, why)) },
		Unanswered: func(why error) { r.unanswered(key, why) },
		Follow:     func() (bool, error) { return r.follow(ctx, key, found), nil },
	}.LookedUp(err)
}

var errRelatedVersion = errors.New("the API server does not serve this version")

// relatedErr is the error of a look-up for who wrote the related objects of a registration.
func relatedErr(version string, err error) error {
	if errors.Is(err, cluster.ErrVersionNotServed) {
		const way = "set the version of the related object to one that is served, or leave it out"
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

// drop forgets a kind that no registration needs. It is false if one does.
func (r *RelatedKinds) drop(key rules.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.related[key]; old != nil {
		if old.kind != nil {
			return false
		}
		old.stop()
	}
	delete(r.related, key)
	r.inventory.DeleteRelated(key)
	return true
}

// change what is known of a kind that registrations need, and notify those that depend on it.
func (r *RelatedKinds) change(key rules.Key, change func(*relatedKind)) {
	defer r.notify(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.related[key]; k != nil && k.kind != nil { // Else the next reconciliation drops it.
		change(k)
	}
}

// withdraw stops the watch of a kind that is not served. If it is served in no way, there are no objects. Else they are unknown.
func (r *RelatedKinds) withdraw(key rules.Key, why error) {
	r.change(key, func(old *relatedKind) {
		old.stop()
		entry := unwatchedRelated(old.kind, why, old.sinceOf(why))
		r.related[key] = entry
		switch {
		case entry.objects == nil:
			if old.objects != nil {
				r.inventory.DeleteRelated(key)
			}
			r.inventory.SetRelatedMissing(key, why.Error())
		case !old.has(old.kind) || old.objects.Len() > 0:
			r.inventory.SetRelated(entry.objects)
		}
	})
}

// unanswered records that the API server did not say what it serves. An existing watch stays, and so do the last known objects.
func (r *RelatedKinds) unanswered(key rules.Key, why error) {
	r.change(key, func(k *relatedKind) {
		if k.watch == nil {
			k.err, k.since = why, k.sinceOf(why)
			r.inventory.SetRelatedMissing(key, why.Error())
		}
	})
}

// follow watches the objects of a kind, again if other fields are needed. It is false if the API server answers the watch with 404.
func (r *RelatedKinds) follow(ctx context.Context, key rules.Key, found cluster.Resource) bool {
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
	entry := &relatedKind{kind: old.kind, watched: keptObjects{old.kind, found}}
	entry.objects = old.objects
	r.related[key] = entry
	entry.watch = &relatedWatch{
		name: key.String(), kept: entry.watched, objects: inventory.NewObjects(entry.kind, found.Namespaced, nil),
		publish: func(objects *inventory.Objects, changed *seen[*expression.Object]) {
			r.publish(entry, objects, changed)
		},
	}
	entry.watch.start(ctx, r.client, func(err error) { r.answered(entry, key, err) })
	logf.FromContext(ctx).Info("Watching objects that claims or classes name",
		"resource", key.Resource, "version", found.Version, "metadataOnly", entry.kind.MetadataOnly())
	return true
}

// publish puts objects into the inventory, unless their watch was replaced.
func (r *RelatedKinds) publish(from *relatedKind, objects *inventory.Objects, changed *seen[*expression.Object]) {
	key, isNews := objects.Kind.Key(), false
	defer func() {
		if isNews {
			r.notify(key)
		}
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.related[key] != from {
		return
	}
	before := from.objects
	from.objects = objects
	if changed != nil && before != nil && before.Kind == objects.Kind {
		r.inventory.ChangeRelated(objects, changed.Namespace, changed.Name)
	} else {
		r.inventory.SetRelated(objects)
	}
	now := time.Now()
	isNews = before == nil || before.Kind != objects.Kind || before.IsCrowded() || objects.IsCrowded() || changed != nil &&
		before.IsExpired(changed.Namespace, changed.Name, now) != objects.IsExpired(changed.Namespace, changed.Name, now)
}

// answered records the API server's answer to a watch.
func (r *RelatedKinds) answered(from *relatedKind, key rules.Key, err error) {
	r.change(key, func(k *relatedKind) {
		switch {
		case k != from || err == nil:
		case apierrors.IsNotFound(err):
			r.requeued.Notify(key.String())
		case !k.has(k.kind):
			r.inventory.SetRelatedMissing(key, whyRefused(err, permitRelated))
		}
	})
}

// notify the listeners of each registration that needs a related kind: its state changed.
func (r *RelatedKinds) notify(key rules.Key) {
	r.mu.Lock()
	claimKinds, classKinds := maps.Clone(r.claimKinds), maps.Clone(r.classKinds)
	r.mu.Unlock()
	isIt := func(needed *rules.Kind) bool { return needed.Key() == key }
	for name, k := range claimKinds {
		if slices.ContainsFunc(k.kind.RelatedKinds(), isIt) {
			r.changed.Notify(name)
		}
	}
	for name, all := range classKinds {
		if slices.ContainsFunc(all, func(k *inventory.ClassKind) bool { return slices.ContainsFunc(k.RelatedKinds(), isIt) }) {
			r.release(name)
			r.ofClasses.Notify(name)
		}
	}
}
