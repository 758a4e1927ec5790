package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// RefusalGrace is how long a starting replica does not believe that a class kind which was offered before is refused. An API server
	// that is starting, too, refuses everything until it knows its roles, and serves no CRD until it has read it.
	RefusalGrace = 30 * time.Second
	// openingInterval is how often missing kinds are looked for until the inventory is open, and missingInterval how often afterwards.
	openingInterval = 50 * time.Millisecond
	missingInterval = time.Second
)

// Opening opens the inventory.
type Opening struct {
	inventory  *selector.Inventory
	classKinds *ClassKinds
	related    *RelatedKinds
	resources  *Resources
	opened     chan struct{}
}

// openWhenComplete opens the inventory once no registered kind is missing, or after StartPatience, without the claims that those
// serve. Then it updates the missing kinds until there are none. A kind whose classes arrive stops being missing by itself. One may also be
// refused permanently, no longer be registered, serve other claim kinds, or be missing for another reason.
func (o *Opening) openWhenComplete(ctx context.Context) error {
	missing, ended := o.awaitComplete(ctx)
	if ended {
		return nil
	}
	o.setMissing(missing, nil)
	o.inventory.Open()
	debug.FreeOSMemory() // Listing the classes took several times the memory that holding them takes.
	logf.FromContext(ctx).Info("Ready to bind claims")
	close(o.opened)
	_ = wait.PollUntilContextCancel(ctx, missingInterval, false, func(ctx context.Context) (bool, error) {
		if _, still := o.awaited(ctx); still != nil {
			maps.DeleteFunc(still, func(name string, _ missingKind) bool { // Kinds that were registered since are not waited for.
				_, was := missing[name]
				return !was
			})
			o.setMissing(still, missing)
			missing = still
		}
		return len(missing) == 0, nil
	})
	<-ctx.Done()
	return nil
}

// awaitComplete returns the class kinds that are missing after StartPatience, unless the context has ended.
func (o *Opening) awaitComplete(ctx context.Context) (missing map[string]missingKind, ended bool) {
	log := logf.FromContext(ctx)
	before, began := "", time.Time{}
	err := wait.PollUntilContextCancel(ctx, openingInterval, true, func(ctx context.Context) (bool, error) {
		awaited, kinds := o.awaited(ctx)
		if kinds == nil {
			began = time.Time{} // Without the registrations, what is missing is unknown.
		} else if began.IsZero() {
			began = time.Now()
		}
		if len(awaited) == 0 {
			return true, nil
		}
		if why := awaited[0].Error(); why != before {
			before = why
			log.Info("Not ready yet", "because", why)
		}
		if kinds == nil || time.Since(began) < v1beta1.StartPatience {
			return false, nil
		}
		for _, why := range awaited {
			log.Info("Starting without what is not known yet: claims that need it are not bound until it is", "because", why.Error())
		}
		missing = kinds
		return true, nil
	})
	return missing, err != nil
}

// setMissing records the missing kinds in the inventory, and clears those that were missing before.
func (o *Opening) setMissing(missing, before map[string]missingKind) {
	for name, k := range before {
		if _, still := missing[name]; !still {
			o.inventory.ClearMissing(name)
			if s := o.classKinds.State(name); s.Refused { // It is no longer served, and says so.
				o.inventory.SetUnread(name, k.claimKinds, s.Reason)
			}
			o.classKinds.changed.Notify(&inventory.ClassKind{Name: name, ClaimKinds: k.claimKinds})
		}
	}
	for name, k := range missing {
		o.inventory.SetMissing(name, k.claimKinds, k.why)
		if !reflect.DeepEqual(before[name], k) {
			o.classKinds.changed.Notify(&inventory.ClassKind{Name: name, ClaimKinds: k.claimKinds})
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
	if awaited, _ := o.awaited(ctx); len(awaited) > 0 {
		return awaited[0]
	}
	return errors.New("all registered kinds are known, and take effect soon")
}

// missingKind is a class kind that was offered before and is not known yet.
type missingKind struct {
	claimKinds []string
	why        string
}

// awaited says what is not in the inventory yet, with the missing class kinds among it: nil if the registrations are not known.
func (o *Opening) awaited(ctx context.Context) (awaited []error, missing map[string]missingKind) {
	claimKinds, classKinds, err := List(ctx, o.resources.reader)
	if err != nil {
		return []error{truncate.Error(err)}, nil
	}
	memory, missing := o.resources.memory(ctx), map[string]missingKind{}
	for i := range claimKinds {
		k := &claimKinds[i]
		if o.inventory.ClaimKind(k.Name) == nil {
			awaited = append(awaited, fmt.Errorf("claim kind %q is not registered yet", k.Name))
		}
		if s := o.related.RelatedState(k.Name); !s.Known && s.Pending() && memory.ServedClaims(k) {
			awaited = append(awaited, fmt.Errorf("objects that claims of %q name are not known yet: %s", k.Name, s.Message))
		}
	}
	for i := range classKinds {
		k := &classKinds[i]
		if s := o.classKinds.State(k.Name); s.Pending() && memory.ServedClasses(k.Name) {
			served := rules.ServedNames(k, rules.Served(k, claimKinds))
			missing[k.Name] = missingKind{served, s.Message}
			awaited = append(awaited, fmt.Errorf("the classes of %q, which were offered before, are not known yet: %s", k.Name, s.Message))
		}
	}
	return awaited, missing
}

// Pending reports whether a replica waits for a class kind that other replicas offered, so that a restart never narrows the view: until the
// API server says permanently that it does not serve the resource. Where it does not serve it to us, only an admin ends that.
func (s State) Pending() bool {
	return s.Reason == v1beta1.ReasonNotPermitted ||
		s.Reason == v1beta1.ReasonNotSynced && (!s.Refused || s.JustRefused())
}

// gone reports whether the API server permanently does not serve the classes.
func (s State) gone() bool {
	return s.Reason == v1beta1.ReasonNotInstalled || s.Reason == v1beta1.ReasonUnsuitable ||
		s.Reason == v1beta1.ReasonNotSynced && s.Refused && !s.JustRefused()
}

// JustRefused reports whether a refusal of the API server may yet pass by itself.
func (s State) JustRefused() bool { return s.Refused && time.Since(s.Since) < RefusalGrace }
