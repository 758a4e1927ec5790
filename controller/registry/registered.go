package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// kind whose classes are watched, nil while there is no watch.
	kind   *inventory.ClassKind
	synced bool
	// offered says that the classes were offered before a fault of the registration took them out of the inventory.
	offered bool
}

// ClassKinds watches the classes of each kind. It starts when its ClassKind appears or its resource gets installed, and stops when either
// goes.
type ClassKinds struct {
	inventory *selector.Inventory
	reader    client.Reader // from the cache
	resources *Resources
	client    *classClient

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

func (c *ClassKinds) reconcileClassKind(ctx context.Context, name string) (ctrl.Result, error) {
	k := &v1beta1.ClassKind{}
	err := c.reader.Get(ctx, client.ObjectKey{Name: name}, k)
	if apierrors.IsNotFound(err) {
		c.drop(name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot get class kind %q: %w", name, err)
	}
	served, err := claimKindsServed(ctx, c.reader, k)
	if err != nil {
		return ctrl.Result{}, err
	}
	found, err := c.resources.LookUp(ctx, name, "list", "watch")
	return Followed{
		Withdraw:   func(why error) { c.withdraw(name, why) },
		Unanswered: func(why error) { c.unanswered(name, rules.ServedNames(k, served), why) },
		Follow: func() (bool, error) {
			return c.follow(ctx, inventory.NewClassKind(k, found.GroupVersionKind, found.Namespaced, served...)), nil
		},
	}.LookedUp(err)
}

// follow watches the classes of a kind, and starts again if its registration changed. It is false if the API server answers the watch with
// 404.
func (c *ClassKinds) follow(ctx context.Context, kind *inventory.ClassKind) bool {
	c.mu.Lock()
	old := c.kinds[kind.Name] // Nobody replaces it meanwhile: a kind has one reconciliation at a time.
	c.mu.Unlock()
	if old != nil && old.watch != nil && old.kind.Same(kind) {
		return old.served()
	}
	if kind.Fault != nil { // The status says so, until the registration changes.
		c.reject(kind, slices.Contains(c.resources.memory(ctx).ClassKinds, kind.Name))
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := &registered{kind: kind}
	if old != nil {
		old.stop()
		entry.objects, entry.offered = old.objects, old.offered
	}
	c.kinds[kind.Name] = entry
	c.setUnread(kind.Name, kind.ClaimKinds, entry, v1beta1.ReasonNotSynced)
	entry.watch = &classWatch{
		name: kind.Name, kept: keptClasses{kind, c.client.stored}, objects: inventory.NewClasses(kind, nil),
		publish: func(classes *inventory.Classes, changed *seen[*inventory.Class]) { c.publish(entry, classes, changed) },
	}
	entry.watch.start(ctx, c.client, func(err error) {
		c.answered(entry, kind, err)
		c.changed.Notify(kind)
		if apierrors.IsNotFound(err) {
			c.requeued.Notify(kind.Name)
		}
	})
	logf.FromContext(ctx).Info("Watching the classes of a kind",
		"classKind", kind.Name, "version", kind.GroupVersionKind.Version, "metadataOnly", kind.MetadataOnly())
	return true
}

// answered records why the classes of a kind cannot be read.
func (c *ClassKinds) answered(entry *registered, kind *inventory.ClassKind, err error) {
	reason := v1beta1.ReasonNotSynced
	if apierrors.IsForbidden(err) {
		reason = v1beta1.ReasonNotPermitted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds[kind.Name] == entry {
		c.setUnread(kind.Name, kind.ClaimKinds, entry, reason)
	}
}

// setUnread records in the inventory that the classes of a kind are not read, unless they were offered. Its caller holds mu.
func (c *ClassKinds) setUnread(name string, claimKinds []string, entry *registered, reason string) {
	if entry.objects != nil || !entry.offered {
		c.inventory.SetUnread(name, claimKinds, reason)
	}
}

// publish puts classes into the inventory, unless its watch has been replaced.
func (c *ClassKinds) publish(from *registered, classes *inventory.Classes, changed *seen[*inventory.Class]) {
	before, current := c.put(from, classes, changed)
	if !current || before != nil && before.SameSummary(classes) {
		return // No listener would see a difference.
	}
	if before != nil && before.Kind != classes.Kind { // It may have served other claim kinds.
		c.changed.Notify(before.Kind)
	}
	c.changed.Notify(classes.Kind)
}

// put replaces the classes in the inventory. Its caller recovers from panics, so a panic must not leave mu locked.
func (c *ClassKinds) put(
	from *registered, classes *inventory.Classes, changed *seen[*inventory.Class],
) (before *inventory.Classes, current bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds[classes.Kind.Name] != from {
		return nil, false
	}
	before = from.objects
	from.objects, from.synced = classes, true
	if changed == nil {
		c.inventory.SetClasses(classes)
	} else {
		c.inventory.ChangeClass(classes, changed.Namespace, changed.Name)
	}
	return before, true
}

// unfollowed is a kind whose classes are not watched.
func unfollowed(why error) *registered {
	return &registered{followed: followed[*inventory.Classes, *inventory.Class]{err: why, since: time.Now()}}
}

// withdraw takes the classes of a kind out, because the API server does not serve them.
func (c *ClassKinds) withdraw(name string, why error) {
	c.mu.Lock()
	old := c.kinds[name]
	c.kinds[name] = unfollowed(why)
	c.mu.Unlock()
	if old == nil || old.err == nil || old.err.Error() != why.Error() {
		c.remove(name, old)
	}
}

// reject takes the classes of a kind out, because its registration is at fault. If they were ever offered, no claim of its claim kinds is
// bound until that is mended, or they are not to be offered any more.
func (c *ClassKinds) reject(kind *inventory.ClassKind, served bool) {
	c.mu.Lock()
	old := c.kinds[kind.Name]
	entry := unfollowed(kind.Fault)
	entry.offered = served || old != nil && (old.objects != nil || old.offered)
	c.kinds[kind.Name] = entry
	if entry.offered {
		c.inventory.Withhold(kind.Name, kind.ClaimKinds, kind.Fault.Text)
	} else {
		c.setUnread(kind.Name, kind.ClaimKinds, entry, kind.Fault.Reason)
	}
	c.mu.Unlock()
	c.removed(kind.Name, old)
	c.changed.Notify(kind)
}

// drop forgets a class kind that is not registered any more.
func (c *ClassKinds) drop(name string) {
	c.mu.Lock()
	old := c.kinds[name]
	delete(c.kinds, name)
	c.mu.Unlock()
	if old != nil {
		c.remove(name, old)
	}
}

func (c *ClassKinds) remove(name string, old *registered) {
	c.inventory.DeleteClasses(name)
	c.removed(name, old)
}

// removed stops the watch of classes that the inventory does not have any more.
func (c *ClassKinds) removed(name string, old *registered) {
	kind := &inventory.ClassKind{Name: name}
	if old != nil && old.watch != nil {
		old.stop()
		kind = old.kind
	}
	if old != nil && old.objects != nil && old.objects.Kind != kind {
		c.changed.Notify(old.objects.Kind)
	}
	c.changed.Notify(kind)
}

// unanswered records that the API server did not say what it serves. An existing watch stays.
func (c *ClassKinds) unanswered(name string, claimKinds []string, why error) {
	c.mu.Lock()
	old := c.kinds[name]
	if old == nil || old.watch == nil {
		entry := unfollowed(why)
		if old != nil {
			entry.offered, entry.since = old.offered, old.sinceOf(why)
		}
		c.kinds[name] = entry
		c.setUnread(name, claimKinds, entry, ReasonFor(why))
	}
	c.mu.Unlock()
	c.changed.Notify(&inventory.ClassKind{Name: name, ClaimKinds: claimKinds})
}

// Permit is what lets classbind read the classes of a kind.
func Permit(classKind string) string {
	role := "classbind-" + classKind
	return fmt.Sprintf("apply the ClusterRole of the registration, or run: "+
		"kubectl create clusterrole %s --verb=get,list,watch --resource=%s && "+
		"kubectl label clusterrole %s %s=true", role, classKind, role, v1beta1.AggregateLabel)
}

// State of a class kind.
type State struct {
	// Reason of its Ready condition, and its message.
	Reason, Message string
	// Classes that are offered, nil if there are none.
	Classes *inventory.Classes
	// Revision of the watched kind.
	Revision inventory.Revision
	// Refused says that the API server said no, which may yet change. Since is when that began.
	Refused bool
	Since   time.Time
	// confirmed is when the API server last said how the classes are; zero means never.
	confirmed time.Time
}

// notWatched is the state of a class kind whose classes are not watched.
func notWatched(why error, since time.Time) State {
	return State{Reason: ReasonFor(why), Message: why.Error(), Refused: errors.Is(why, ErrCRDNotServed), Since: since}
}

// whyRefused is why the API server does not serve objects, with what permits it.
func whyRefused(err error, permit string) string {
	switch {
	case err == nil:
		return "it has not answered yet"
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%v: %s", err, permit)
	}
	return err.Error()
}

// State returns what is known of a class kind.
func (c *ClassKinds) State(name string) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[name]
	if k == nil {
		return State{Reason: v1beta1.ReasonNotSynced, Message: "not looked up yet"}
	}
	if k.watch == nil {
		return notWatched(k.err, k.since)
	}
	since, err := k.watch.LastError()
	s := State{Classes: k.objects, Revision: k.kind.Revision, Since: since, confirmed: k.watch.LastConfirmed()}
	why := whyRefused(err, Permit(k.kind.Name))
	switch {
	case k.synced && err == nil:
		s.Reason, s.Message = v1beta1.ReasonServed, "the classes are offered to claims"
	case k.synced:
		s.Reason = v1beta1.ReasonStale
		s.Message = "the last known classes are offered, because the API server no longer answers: " + why
	case k.objects != nil:
		s.Reason = v1beta1.ReasonStale
		s.Message = "the classes are offered as they were registered before the last change, " +
			"because the API server does not answer: " + why
	case apierrors.IsForbidden(err):
		s.Reason, s.Message, s.Refused = v1beta1.ReasonNotPermitted, why, true
	default:
		s.Reason, s.Message = v1beta1.ReasonNotSynced, "the API server does not list the classes: "+why
	}
	return s
}
