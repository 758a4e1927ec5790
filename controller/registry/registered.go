package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// registered is what is known of one ClassKind.
type registered struct {
	followed[*selector.Classes, *selector.Class]
	// kind whose classes are watched; nil while there is no watch.
	kind   *selector.ClassKind
	synced bool
	// offered says that the classes were offered before a fault of the registration took them
	// out of the inventory.
	offered bool
}

// follow watches the classes of a kind, and starts again if its registration changed.
// It is false if the API server answers the watch with 404.
func (r *Registration) follow(ctx context.Context, kind *selector.ClassKind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := &registered{kind: kind}
	if old := r.kinds[kind.Name]; old != nil {
		if old.watch != nil && old.kind.Same(kind) {
			return old.served()
		}
		old.stop()
		entry.objects, entry.offered = old.objects, old.offered
	}
	r.kinds[kind.Name] = entry
	r.setUnread(kind.Name, kind.ClaimKinds, entry, v1alpha1.ReasonNotSynced)
	entry.watch = &classWatch{
		name: kind.Name, kept: keptClasses{kind, r.classes.stored}, objects: selector.NewClasses(kind, nil),
		publish: func(classes *selector.Classes, changed *seen[*selector.Class]) { r.publish(entry, classes, changed) },
	}
	entry.watch.start(ctx, r.classes, func(err error) {
		r.answered(entry, kind, err)
		r.changed.Notify(kind)
		if apierrors.IsNotFound(err) {
			r.requeued.Notify(kind.Name)
		}
	})
	logf.FromContext(ctx).Info("Watching the classes of a kind",
		"classKind", kind.Name, "version", kind.GroupVersionKind.Version, "metadataOnly", kind.MetadataOnly())
	return true
}

// answered records why the classes of a kind cannot be read.
func (r *Registration) answered(entry *registered, kind *selector.ClassKind, err error) {
	reason := v1alpha1.ReasonNotSynced
	if apierrors.IsForbidden(err) {
		reason = v1alpha1.ReasonNotPermitted
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds[kind.Name] == entry {
		r.setUnread(kind.Name, kind.ClaimKinds, entry, reason)
	}
}

// setUnread records in the inventory that the classes of a kind are not read, unless some of
// them are offered, or were. Its caller holds mu.
func (r *Registration) setUnread(name string, claimKinds []string, entry *registered, reason string) {
	if entry.objects == nil && !entry.offered {
		r.Inventory.SetUnread(name, claimKinds, reason)
	}
}

// publish puts classes into the inventory, unless its watch has been replaced.
func (r *Registration) publish(from *registered, classes *selector.Classes, changed *seen[*selector.Class]) {
	before, current := r.put(from, classes, changed)
	if !current || before != nil && before.SameSummary(classes) {
		return // No listener would see a difference.
	}
	if before != nil && before.Kind != classes.Kind { // It may have served other claim kinds.
		r.changed.Notify(before.Kind)
	}
	r.changed.Notify(classes.Kind)
}

// put replaces the classes in the inventory. Its caller recovers from panics, so a
// panic must not leave mu locked.
func (r *Registration) put(
	from *registered, classes *selector.Classes, changed *seen[*selector.Class],
) (before *selector.Classes, current bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds[classes.Kind.Name] != from {
		return nil, false
	}
	before = from.objects
	from.objects, from.synced = classes, true
	if changed == nil {
		r.Inventory.SetClasses(classes)
	} else {
		r.Inventory.ChangeClass(classes, changed.Namespace, changed.Name)
	}
	return before, true
}

// unfollowed is a kind whose classes are not watched.
func unfollowed(why error) *registered {
	return &registered{followed: followed[*selector.Classes, *selector.Class]{err: why, since: time.Now()}}
}

// withdraw takes the classes of a kind out, because the API server does not serve them.
func (r *Registration) withdraw(name string, why error) {
	r.mu.Lock()
	old := r.kinds[name]
	r.kinds[name] = unfollowed(why)
	r.mu.Unlock()
	if old == nil || old.err == nil || old.err.Error() != why.Error() {
		r.remove(name, old)
	}
}

// reject takes the classes of a kind out, because its registration is at fault. If they were
// ever offered, no claim of its claim kinds is bound until that is mended, or they are not to
// be offered any more.
func (r *Registration) reject(kind *selector.ClassKind, served bool) {
	r.mu.Lock()
	old := r.kinds[kind.Name]
	entry := unfollowed(kind.Fault)
	entry.offered = served || old != nil && (old.objects != nil || old.offered)
	r.kinds[kind.Name] = entry
	if entry.offered {
		r.Inventory.Withhold(kind.Name, kind.ClaimKinds, kind.Fault.Text)
	} else {
		r.setUnread(kind.Name, kind.ClaimKinds, entry, kind.Fault.Reason)
	}
	r.mu.Unlock()
	r.removed(kind.Name, old)
	r.changed.Notify(kind)
}

// drop forgets a class kind that is not registered any more.
func (r *Registration) drop(name string) {
	r.mu.Lock()
	old := r.kinds[name]
	delete(r.kinds, name)
	r.mu.Unlock()
	if old != nil {
		r.remove(name, old)
	}
}

func (r *Registration) remove(name string, old *registered) {
	r.Inventory.DeleteClasses(name)
	r.removed(name, old)
}

// removed stops the watch of classes that the inventory does not have any more.
func (r *Registration) removed(name string, old *registered) {
	kind := &selector.ClassKind{Name: name}
	if old != nil && old.watch != nil {
		old.stop()
		kind = old.kind
	}
	if old != nil && old.objects != nil && old.objects.Kind != kind {
		r.changed.Notify(old.objects.Kind)
	}
	r.changed.Notify(kind)
}

// unanswered records that the API server did not say what it serves. An existing watch
// stays.
func (r *Registration) unanswered(name string, claimKinds []string, why error) {
	r.mu.Lock()
	old := r.kinds[name]
	if old == nil || old.watch == nil {
		entry := unfollowed(why)
		if old != nil {
			entry.offered, entry.since = old.offered, old.sinceOf(why)
		}
		r.kinds[name] = entry
		r.setUnread(name, claimKinds, entry, ReasonFor(why))
	}
	r.mu.Unlock()
	r.changed.Notify(&selector.ClassKind{Name: name, ClaimKinds: claimKinds})
}

// Permit is what lets classbind read the classes of a kind.
func Permit(classKind string) string {
	role := "classbind-" + classKind
	return fmt.Sprintf("apply the ClusterRole of the registration, or run: "+
		"kubectl create clusterrole %s --verb=get,list,watch --resource=%s && "+
		"kubectl label clusterrole %s %s=true", role, classKind, role, v1alpha1.AggregateLabel)
}

// State of a class kind.
type State struct {
	// Reason of its Ready condition, and its message.
	Reason, Message string
	// Classes that are offered, nil if there are none.
	Classes *selector.Classes
	// Revision of the watched kind.
	Revision selector.Revision
	// Refused says that the API server said no, which may yet change. Since is when
	// that began.
	Refused bool
	Since   time.Time
	// confirmed is when the API server last said how the classes are; zero means never.
	confirmed time.Time
}

// State returns what is known of a class kind.
func (r *Registration) State(name string) State {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kinds[name]
	if k == nil {
		return State{Reason: v1alpha1.ReasonNotSynced, Message: "not looked up yet"}
	}
	if k.watch == nil {
		return State{Reason: ReasonFor(k.err), Message: k.err.Error(), Refused: errors.Is(k.err, ErrCRDNotServed), Since: k.since}
	}
	since, err := k.watch.LastError()
	s := State{Classes: k.objects, Revision: k.kind.Revision, Since: since, confirmed: k.watch.LastConfirmed()}
	why := "it has not answered yet"
	switch {
	case apierrors.IsForbidden(err):
		why = fmt.Sprintf("%v: %s", err, Permit(k.kind.Name))
	case err != nil:
		why = err.Error()
	}
	switch {
	case k.synced && err == nil:
		s.Reason, s.Message = v1alpha1.ReasonServed, "the classes are offered to claims"
	case k.synced:
		s.Reason = v1alpha1.ReasonStale
		s.Message = "the last known classes are offered, because the API server no longer answers: " + why
	case k.objects != nil:
		s.Reason = v1alpha1.ReasonStale
		s.Message = "the classes are offered as they were registered before the last change, " +
			"because the API server does not answer: " + why
	case apierrors.IsForbidden(err):
		s.Reason, s.Message, s.Refused = v1alpha1.ReasonNotPermitted, why, true
	default:
		s.Reason, s.Message = v1alpha1.ReasonNotSynced, "the API server does not list the classes: "+why
	}
	return s
}
