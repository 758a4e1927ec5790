package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/brief"
)

const (
	// refusalGrace is how long a class kind that was offered before may be refused
	// to a replica that starts before that is believed: an API server that starts
	// itself refuses everything until it knows its roles, and serves no CRD until it
	// has read it.
	refusalGrace = 30 * time.Second
	// openingInterval is how often it is seen, until the inventory is open, whether
	// all is there, and missingInterval how often afterwards.
	openingInterval = 50 * time.Millisecond
	missingInterval = time.Second
)

// openWhenComplete opens the inventory once nothing that is registered is missing
// from it, or once that has lasted. Then only the claims of those kinds are not
// bound that a missing class kind serves, until it is there.
func (r *Registration) openWhenComplete(ctx context.Context) error {
	missing, ok := r.awaitComplete(ctx)
	if !ok {
		return nil // The process is to stop.
	}
	r.setMissing(missing, nil)
	r.Inventory.Open()
	debug.FreeOSMemory() // To list all classes took several times what is held of them.
	logf.FromContext(ctx).Info("Ready to bind claims")
	close(r.opened)
	r.followMissing(ctx, missing)
	<-ctx.Done()
	return nil
}

// awaitComplete returns the class kinds that are missing after StartPatience. It
// is false if the context has ended.
func (r *Registration) awaitComplete(ctx context.Context) (missing []missingKind, ok bool) {
	log := logf.FromContext(ctx)
	before, began := "", time.Time{}
	err := wait.PollUntilContextCancel(ctx, openingInterval, true, func(ctx context.Context) (bool, error) {
		a, err := r.awaited(ctx)
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
		if err != nil || time.Since(began) < v1alpha1.StartPatience {
			return false, nil //nolint:nilerr // It is logged, and tried again.
		}
		for _, k := range a.classKinds {
			log.Info("Starting without a class kind: claims of the kinds that it serves are not bound until it is known", "classKind", k.Name, "claimKinds", k.ClaimKinds, "because", k.why)
		}
		missing = a.classKinds
		return true, nil
	})
	return missing, err == nil
}

// followMissing until nothing is missing any more. The classes of a kind that come
// make an end of it by themselves; here it is seen that a kind is refused for good, or
// not registered any more, what it serves now, and why it is missing now.
func (r *Registration) followMissing(ctx context.Context, missing []missingKind) {
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(missingInterval):
		}
		a, err := r.awaited(ctx)
		if err != nil {
			continue
		}
		// What is registered since is not waited for.
		still := slices.DeleteFunc(a.classKinds, func(k missingKind) bool { return !slices.ContainsFunc(missing, k.sameName) })
		r.setMissing(still, missing)
		missing = still
	}
}

// setMissing in the inventory, and clear those that were missing before.
func (r *Registration) setMissing(missing, before []missingKind) {
	for _, k := range before {
		if !slices.ContainsFunc(missing, k.sameName) {
			r.Inventory.ClearMissing(k.Name)
			r.notify(k.ClassKind)
		}
	}
	for _, k := range missing {
		r.Inventory.SetMissing(k.Name, k.ClaimKinds, k.why)
		if !slices.ContainsFunc(before, k.equal) {
			r.notify(k.ClassKind)
		}
	}
}

// Opened is closed once the inventory is open.
func (r *Registration) Opened() <-chan struct{} { return r.opened }

// Ready is an error until the inventory is open.
func (r *Registration) Ready(ctx context.Context) error {
	if r.Inventory.Snapshot() != nil {
		return nil
	}
	a, err := r.awaited(ctx)
	if err = errors.Join(err, a.problem()); err != nil {
		return err
	}
	return errors.New("all that is registered is known, and is about to be used")
}

// awaited is what of all that is registered is not in the inventory yet.
type awaited struct {
	claimKinds []string
	classKinds []missingKind
}

// missingKind is a class kind that was offered before and is not known.
type missingKind struct {
	*selector.ClassKind // its name and claim kinds
	why                 string
}

func (k missingKind) sameName(o missingKind) bool { return k.Name == o.Name }

func (k missingKind) equal(o missingKind) bool {
	return k.Name == o.Name && k.why == o.why && slices.Equal(k.ClaimKinds, o.ClaimKinds)
}

// problem names the first of it, nil if there is none.
func (a awaited) problem() error {
	switch {
	case len(a.claimKinds) > 0:
		return fmt.Errorf("claim kind %q is not registered yet", a.claimKinds[0])
	case len(a.classKinds) > 0:
		return fmt.Errorf("the classes of %q, which were offered before, are not known yet: %s", a.classKinds[0].Name, a.classKinds[0].why)
	}
	return nil
}

// awaited reads from the cache what is registered.
func (r *Registration) awaited(ctx context.Context) (a awaited, err error) {
	claimKinds, classKinds := &v1alpha1.ClaimKindList{}, &v1alpha1.ClassKindList{}
	if err := r.reader.List(ctx, claimKinds); err != nil {
		return a, fmt.Errorf("cannot list claim kinds: %w", brief.Error(err))
	}
	if err := r.reader.List(ctx, classKinds); err != nil {
		return a, fmt.Errorf("cannot list class kinds: %w", brief.Error(err))
	}
	for i := range claimKinds.Items {
		if name := claimKinds.Items[i].Name; !r.Inventory.HasClaimKind(name) {
			a.claimKinds = append(a.claimKinds, name)
		}
	}
	for i := range classKinds.Items {
		k := &classKinds.Items[i]
		if s := r.state(k.Name); pending(k, s) {
			a.classKinds = append(a.classKinds, missingKind{&selector.ClassKind{Name: k.Name, ClaimKinds: k.Spec.ClaimKinds}, s.message})
		}
	}
	return a, nil
}

// pending says whether a class kind has yet to join the view. It is waited for
// if its status says that peers or predecessors offered its classes, so that a
// restart never narrows the view, unless the API server says for good that it
// serves the resource no more, or not to us.
func pending(k *v1alpha1.ClassKind, s state) bool {
	if !meta.IsStatusConditionTrue(k.Status.Conditions, v1alpha1.ConditionReady) {
		return false
	}
	if s.refused {
		return time.Since(s.since) < refusalGrace
	}
	return s.reason == v1alpha1.ReasonNotSynced
}
