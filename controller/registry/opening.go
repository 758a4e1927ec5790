package registry

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// RefusalGrace is how long a starting replica does not believe that a class kind
	// which was offered before is refused. An API server that is starting, too, refuses
	// everything until it knows its roles, and serves no CRD until it has read it.
	RefusalGrace = 30 * time.Second
	// openingInterval is how often missing kinds are looked for until the inventory is
	// open, and missingInterval how often afterwards.
	openingInterval = 50 * time.Millisecond
	missingInterval = time.Second
)

// Opening opens the inventory.
type Opening struct {
	inventory  *selector.Inventory
	reader     client.Reader // from the cache
	classKinds *ClassKinds
	related    *RelatedKinds
	resources  *Resources
	opened     chan struct{}
}

// openWhenComplete opens the inventory once no registered kind is missing from it, or
// after StartPatience. In that case, the claims that a missing class kind serves are
// not bound until it is there.
func (o *Opening) openWhenComplete(ctx context.Context) error {
	missing, ok := o.awaitComplete(ctx)
	if !ok {
		return nil // The process is stopping.
	}
	o.setMissing(missing, nil)
	o.inventory.Open()
	debug.FreeOSMemory() // Listing the classes took several times the memory that holding them takes.
	logf.FromContext(ctx).Info("Ready to bind claims")
	close(o.opened)
	o.followMissing(ctx, missing)
	<-ctx.Done()
	return nil
}

// awaitComplete returns the class kinds that are missing after StartPatience. It
// is false if the context has ended.
func (o *Opening) awaitComplete(ctx context.Context) (missing []missingKind, ok bool) {
	log := logf.FromContext(ctx)
	before, began := "", time.Time{}
	err := wait.PollUntilContextCancel(ctx, openingInterval, true, func(ctx context.Context) (bool, error) {
		a, err := o.awaited(ctx)
		if err != nil {
			began = time.Time{} // Without the registrations, nobody knows what is missing.
		} else if began.IsZero() {
			began = time.Now()
		}
		why := errors.Join(err, a.problem())
		if why == nil {
			return true, nil
		}
		if why.Error() != before {
			before = why.Error()
			log.Info("Not ready yet", "because", before)
		}
		if err != nil || time.Since(began) < v1beta1.StartPatience {
			return false, nil //nolint:nilerr // It is logged, and tried again.
		}
		for _, k := range a.related {
			log.Info("Starting without objects that claims name: claims of the kind are not bound until they are known",
				"claimKind", k.claimKind, "because", k.why)
		}
		for _, k := range a.classKinds {
			log.Info("Starting without a class kind: claims of the kinds that it serves are not bound until it is known",
				"classKind", k.Name, "claimKinds", k.ClaimKinds, "because", k.why)
		}
		missing = a.classKinds
		return true, nil
	})
	return missing, err == nil
}

// followMissing updates the missing kinds until there are none. A kind whose classes arrive
// stops being missing by itself. followMissing sees that a kind is refused for good or not
// registered any more, which claim kinds it serves now, and why it is missing now.
func (o *Opening) followMissing(ctx context.Context, missing []missingKind) {
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(missingInterval):
		}
		a, err := o.awaited(ctx)
		if err != nil {
			continue
		}
		// Kinds that were registered since are not waited for.
		still := slices.DeleteFunc(a.classKinds, func(k missingKind) bool { return !slices.ContainsFunc(missing, k.sameName) })
		o.setMissing(still, missing)
		missing = still
	}
}

// setMissing records the missing kinds in the inventory, and clears those that were missing before.
func (o *Opening) setMissing(missing, before []missingKind) {
	for _, k := range before {
		if !slices.ContainsFunc(missing, k.sameName) {
			o.inventory.ClearMissing(k.Name)
			if s := o.classKinds.State(k.Name); s.Refused { // It is not served any more, and says so.
				o.inventory.SetUnread(k.Name, k.ClaimKinds, s.Reason)
			}
			o.classKinds.changed.Notify(k.ClassKind)
		}
	}
	for _, k := range missing {
		o.inventory.SetMissing(k.Name, k.ClaimKinds, k.why)
		if !slices.ContainsFunc(before, k.equal) {
			o.classKinds.changed.Notify(k.ClassKind)
		}
	}
}

// Opened is closed once the inventory is open.
func (o *Opening) Opened() <-chan struct{} { return o.opened }

// Ready returns an error until the inventory is open.
func (o *Opening) Ready(ctx context.Context) error {
	if o.inventory.Snapshot() != nil {
		return nil
	}
	a, err := o.awaited(ctx)
	if err = errors.Join(err, a.problem()); err != nil {
		return err
	}
	return errors.New("all registered kinds are known, and take effect soon")
}

// awaited are the registered kinds that are not in the inventory yet.
type awaited struct {
	claimKinds []string
	related    []missingRelated
	classKinds []missingKind
}

// missingRelated is a claim kind whose claims were bound before, and name objects that are not
// known yet.
type missingRelated struct{ claimKind, why string }

// missingKind is a class kind that was offered before and is not known yet.
type missingKind struct {
	*inventory.ClassKind // its name and claim kinds
	why                  string
}

func (k missingKind) sameName(o missingKind) bool { return k.Name == o.Name }

func (k missingKind) equal(o missingKind) bool {
	return k.Name == o.Name && k.why == o.why && slices.Equal(k.ClaimKinds, o.ClaimKinds)
}

// problem names the first awaited kind, nil if there is none.
func (a awaited) problem() error {
	switch {
	case len(a.claimKinds) > 0:
		return fmt.Errorf("claim kind %q is not registered yet", a.claimKinds[0])
	case len(a.related) > 0:
		return fmt.Errorf("objects that claims of %q name are not known yet: %s", a.related[0].claimKind, a.related[0].why)
	case len(a.classKinds) > 0:
		return fmt.Errorf("the classes of %q, which were offered before, are not known yet: %s", a.classKinds[0].Name, a.classKinds[0].why)
	}
	return nil
}

// awaited compares the registrations in the cache with the inventory.
func (o *Opening) awaited(ctx context.Context) (a awaited, err error) {
	claimKinds, classKinds := &v1beta1.ClaimKindList{}, &v1beta1.ClassKindList{}
	if err := o.reader.List(ctx, claimKinds); err != nil {
		return a, fmt.Errorf("cannot list claim kinds: %w", truncate.Error(err))
	}
	if err := o.reader.List(ctx, classKinds); err != nil {
		return a, fmt.Errorf("cannot list class kinds: %w", truncate.Error(err))
	}
	memory := o.resources.memory(ctx)
	for i := range claimKinds.Items {
		k := &claimKinds.Items[i]
		if o.inventory.ClaimKind(k.Name) == nil {
			a.claimKinds = append(a.claimKinds, k.Name)
		}
		if s := o.related.RelatedState(k.Name); s.pending() && memory.ServedClaims(k) {
			a.related = append(a.related, missingRelated{k.Name, s.Message})
		}
	}
	for i := range classKinds.Items {
		k := &classKinds.Items[i]
		if s := o.classKinds.State(k.Name); s.Pending() && memory.ServedClasses(k) {
			served := rules.ServedNames(k, rules.Served(k, claimKinds.Items))
			a.classKinds = append(a.classKinds, missingKind{&inventory.ClassKind{Name: k.Name, ClaimKinds: served}, s.Message})
		}
	}
	return a, nil
}

// Pending reports whether a class kind has yet to join the view. A replica waits for it if
// other replicas offered its classes, so that a restart never narrows the view. It stops
// waiting if the API server says for good that it does not serve the resource. Where it does not
// serve it to us, only an admin ends that.
func (s State) Pending() bool {
	return s.Reason == v1beta1.ReasonNotPermitted ||
		s.Reason == v1beta1.ReasonNotSynced && (!s.Refused || s.JustRefused())
}

// gone reports whether the API server says for good that it does not serve the classes.
func (s State) gone() bool {
	return s.Reason == v1beta1.ReasonNotInstalled || s.Reason == v1beta1.ReasonUnsuitable ||
		s.Reason == v1beta1.ReasonNotSynced && s.Refused && !s.JustRefused()
}

// JustRefused reports whether a refusal of the API server may yet pass by itself.
func (s State) JustRefused() bool { return s.Refused && time.Since(s.Since) < RefusalGrace }
