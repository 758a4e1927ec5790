package registry

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// registered is what is known of one ClassKind.
type registered struct {
	followed[*inventory.Classes, *inventory.Class]
	kind   *inventory.ClassKind // whose classes are watched, nil while there is no watch
	synced bool
	// offered reports whether the classes were offered before a fault of the registration took them out of the inventory.
	offered bool
	// held are the classes of this watch while the objects that they name are not known, nil once they are.
	held *inventory.Classes
}

// ClassKinds watches the classes of each kind, while it is registered and its resource is installed.
type ClassKinds struct {
	inventory *selector.Inventory
	resources *Resources
	client    *classClient
	related   *RelatedKinds

	mu    sync.Mutex // guards kinds
	kinds map[string]*registered

	// changed listen for class kinds whose classes changed, and requeued for the names of class kinds to be reconciled again.
	changed  loop.Listeners[*inventory.ClassKind]
	requeued loop.Listeners[string]
}

// OnChange calls a function with each class kind whose state or classes changed, until the context ends.
func (c *ClassKinds) OnChange(ctx context.Context, call func(*inventory.ClassKind)) {
	c.changed.Add(ctx, call)
}

// OnStored sets the function that is called with each default class that a watch shows, and its uid. Call it before the start.
func (c *ClassKinds) OnStored(f func(*inventory.Class, types.UID)) { c.client.stored = f }

func (c *ClassKinds) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	k := &v1beta1.ClassKind{}
	err := c.resources.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	if apierrors.IsNotFound(err) {
		c.drop(name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot get class kind %q: %w", name, err)
	}
	served, err := claimKindsServed(ctx, c.resources.reader, k)
	if err != nil {
		return ctrl.Result{}, err
	}
	names := rules.ServedNames(k, served)
	if k.IsIgnored() {
		c.reject(&inventory.ClassKind{Name: name, ClaimKinds: names, Fault: ignoredFault(name)}, c.resources.Served(ctx, k))
		return ctrl.Result{}, nil
	}
	found, err := c.resources.LookUp(ctx, name, "list", "watch")
	return Followed{
		Withdraw:   func(why error) { c.withdraw(name, why) },
		Unanswered: func(why error) { c.unanswered(name, names, why) },
		Follow: func() (bool, error) {
			return c.follow(ctx, inventory.NewClassKind(k, found.GroupVersionKind, found.Namespaced, served...)), nil
		},
	}.LookedUp(err)
}

// ignoredFault is why no claim is offered the classes of an ignored kind.
func ignoredFault(name string) *inventory.Fault {
	return inventory.Faultf(v1beta1.ReasonIgnored, "its classes are offered to no claim, because the ClassKind has the annotation %s; "+
		"to offer them again, run: kubectl annotate classkind %s %[1]s-", v1beta1.IgnoredAnnotation, name)
}

// get returns what is known of a class kind, which is nothing of a new one. Its caller holds mu.
func (c *ClassKinds) get(name string) *registered { return cmp.Or(c.kinds[name], &registered{}) }

// follow watches the classes of a kind, again if its registration changed. It is false if the API server answers the watch with 404.
func (c *ClassKinds) follow(ctx context.Context, kind *inventory.ClassKind) bool {
	c.mu.Lock()
	old := c.get(kind.Name) // It is not replaced meanwhile: a kind has one reconciliation at a time.
	c.mu.Unlock()
	if old.watch != nil && old.kind.Same(kind) {
		return old.served()
	}
	if kind.Fault != nil { // The status says so, until the registration changes.
		c.reject(kind, c.resources.memory(ctx).ServedClasses(kind.Name))
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old.stop()
	log, entry := logf.FromContext(ctx), &registered{kind: kind, offered: old.offered}
	entry.objects = old.objects
	c.kinds[kind.Name] = entry
	needs := []*inventory.ClassKind{kind}
	if entry.objects != nil { // They are offered until those of this watch are known.
		needs = []*inventory.ClassKind{entry.objects.Kind, kind}
	}
	c.related.needOfClasses(kind.Name, needs...)
	entry.watch = &classWatch{
		name: kind.Name, kept: keptClasses{kind, c.client.stored}, objects: inventory.NewClasses(kind, nil),
		publish: func(classes *inventory.Classes, changed *seen[*inventory.Class]) {
			c.publish(entry, classes, changed)
			if log := log.V(1); changed != nil && log.Enabled() {
				log.Info("A class changed", "classKind", kind.Name, "namespace", changed.Namespace, "name", changed.Name)
			}
		},
	}
	c.setUnread(kind.Name, kind.ClaimKinds, entry)
	entry.watch.start(ctx, c.client, func(err error) { c.answered(entry, err) })
	log.Info("Watching the classes of a kind",
		"classKind", kind.Name, "version", kind.GroupVersionKind.Version, "metadataOnly", kind.MetadataOnly())
	return true
}

// answered records the API server's answer to a watch.
func (c *ClassKinds) answered(entry *registered, err error) {
	kind := entry.kind
	c.mu.Lock()
	if c.kinds[kind.Name] == entry {
		c.setUnread(kind.Name, kind.ClaimKinds, entry)
	}
	c.mu.Unlock()
	c.changed.Notify(kind)
	if apierrors.IsNotFound(err) {
		c.requeued.Notify(kind.Name)
	}
}

// setUnread records in the inventory that the classes of a kind are not read, or that they are missing if they were offered. Its caller
// holds mu.
func (c *ClassKinds) setUnread(name string, claimKinds []string, entry *registered) {
	unread := *entry
	unread.objects = nil // Those of the watch before are no answer.
	if s := c.stateOf(name, &unread); entry.objects != nil || !entry.offered {
		c.inventory.SetUnread(name, claimKinds, s.Reason)
	} else {
		c.inventory.Withhold(name, claimKinds, s.Message)
	}
}

// publish puts classes into the inventory, nil for those that were held, unless their watch was replaced. Its caller recovers from panics,
// which must not leave mu locked.
func (c *ClassKinds) publish(from *registered, classes *inventory.Classes, changed *seen[*inventory.Class]) {
	var notify []*inventory.ClassKind
	defer func() {
		for _, kind := range notify {
			c.changed.Notify(kind)
		}
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	if classes == nil {
		classes = from.held
	}
	if classes == nil || c.kinds[classes.Kind.Name] != from {
		return
	}
	before := from.objects
	if before == nil || before.Kind != classes.Kind { // The first of this watch.
		s := c.related.ClassesRelatedState(classes.Kind.Name)
		if from.held = nil; s.Reason != "" && !s.Known {
			from.held = classes
			c.setUnread(classes.Kind.Name, classes.Kind.ClaimKinds, from)
			notify = append(notify, classes.Kind)
			return
		}
		c.related.needOfClasses(classes.Kind.Name, classes.Kind)
		changed = nil
	}
	from.objects, from.synced = classes, true
	if changed == nil {
		c.inventory.SetClasses(classes)
	} else {
		c.inventory.ChangeClass(classes, changed.Namespace, changed.Name)
	}
	if before != nil && before.SameSummary(classes) {
		return // No listener would see a difference.
	}
	if before != nil && before.Kind != classes.Kind { // It may have served other claim kinds.
		notify = append(notify, before.Kind)
	}
	notify = append(notify, classes.Kind)
}

// release the classes that were held, if the objects that they name are known now.
func (c *ClassKinds) release(name string) {
	c.mu.Lock()
	entry := c.get(name)
	c.mu.Unlock()
	c.publish(entry, nil, nil)
}

// unfollowed is a kind whose classes are not watched.
func unfollowed(why error) *registered {
	return &registered{followed: followed[*inventory.Classes, *inventory.Class]{err: why, since: time.Now()}}
}

// withdraw takes the classes of a kind out, because the API server does not serve them.
func (c *ClassKinds) withdraw(name string, why error) {
	c.mu.Lock()
	old := c.get(name)
	c.kinds[name] = unfollowed(why)
	c.mu.Unlock()
	if old.err == nil || old.err.Error() != why.Error() {
		c.inventory.DeleteClasses(name)
		c.removed(name, old)
	}
}

// drop forgets a class kind that is no longer registered.
func (c *ClassKinds) drop(name string) {
	c.mu.Lock()
	old := c.kinds[name]
	delete(c.kinds, name)
	c.mu.Unlock()
	if old != nil {
		c.inventory.DeleteClasses(name)
		c.removed(name, old)
	}
}

// reject takes the classes of a kind out, because its registration is at fault, or ignored. If they were ever offered, no claim of its
// claim kinds is bound until a fault is mended, or they are no longer to be offered.
func (c *ClassKinds) reject(kind *inventory.ClassKind, served bool) {
	c.mu.Lock()
	old, entry := c.get(kind.Name), unfollowed(kind.Fault)
	entry.offered = served || old.objects != nil || old.offered
	c.kinds[kind.Name] = entry
	if kind.Fault.Reason == v1beta1.ReasonIgnored {
		c.inventory.Ignore(kind.Name, kind.ClaimKinds)
	} else {
		c.setUnread(kind.Name, kind.ClaimKinds, entry)
	}
	c.mu.Unlock()
	c.removed(kind.Name, old)
	c.changed.Notify(kind)
}

// removed stops the watch of classes that the inventory no longer has.
func (c *ClassKinds) removed(name string, old *registered) {
	c.related.needOfClasses(name)
	kind := &inventory.ClassKind{Name: name}
	if old.watch != nil {
		old.stop()
		kind = old.kind
	}
	if old.objects != nil && old.objects.Kind != kind {
		c.changed.Notify(old.objects.Kind)
	}
	c.changed.Notify(kind)
}

// unanswered records that the API server did not say what it serves. An existing watch stays.
func (c *ClassKinds) unanswered(name string, claimKinds []string, why error) {
	c.mu.Lock()
	if old := c.get(name); old.watch == nil {
		entry := unfollowed(why)
		entry.offered, entry.since = old.offered, old.sinceOf(why)
		c.kinds[name] = entry
		c.setUnread(name, claimKinds, entry)
	}
	c.mu.Unlock()
	c.changed.Notify(&inventory.ClassKind{Name: name, ClaimKinds: claimKinds})
}

// Watched returns a class kind as its classes are watched, nil if they are not.
func (c *ClassKinds) Watched(classKind string) *inventory.ClassKind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(classKind).kind
}

// Broken is why there may be newer classes of a kind that are not known, or newer objects that they name, nil if there are none: the last
// list or watch failed, and none has succeeded since.
func (c *ClassKinds) Broken(classKind string) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.get(classKind).watch; w != nil {
		_, err = w.LastError()
	}
	if err == nil {
		err = c.related.broken(classKind)
	}
	return err
}

// Permit is what lets classbind read the classes of a kind.
func Permit(classKind string) string {
	role := "classbind-" + classKind
	return fmt.Sprintf("apply the ClusterRole of the registration, or run: "+
		"kubectl create clusterrole %s --verb=get,list,watch --resource=%s && "+
		"kubectl label clusterrole %s %s=true", role, classKind, role, v1beta1.AggregateLabel)
}

// State returns what is known of a class kind.
func (c *ClassKinds) State(name string) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.kinds[name]; k != nil {
		return c.stateOf(name, k)
	}
	return State{Reason: v1beta1.ReasonNotSynced, Message: "not looked up yet"}
}

// stateOf the class kind of this name. Its caller holds mu.
func (c *ClassKinds) stateOf(name string, k *registered) State {
	if k.watch == nil {
		return notWatched(k.err, k.since)
	}
	messages := stateMessages{
		served: "the classes are offered to claims", notSynced: "the API server does not list the classes: ", permit: Permit(name),
		stale: "the last known classes are offered, because the API server no longer answers: ",
	}
	s := k.state(k.objects != nil, k.synced, messages)
	if k.held != nil {
		s = c.related.ClassesRelatedState(name)
		s.Message = "the classes are not offered, because the objects that they name are not known: " + s.Message
	}
	s.Classes, s.Revision = c.inventory.Classes(k.objects), k.kind.Revision
	s.confirmed = k.watch.LastConfirmed()
	return s
}
