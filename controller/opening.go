package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1alpha1"
)

// refusalGrace is how long a class kind that was offered before may be refused
// to a replica that starts before that is believed: an API server that starts
// itself refuses everything until it knows its roles, and serves no CRD until it
// has read it.
const refusalGrace = 30 * time.Second

// openWhenComplete opens the inventory once nothing that is registered is
// missing from it.
func (r *Registration) openWhenComplete(ctx context.Context) error {
	log := logf.FromContext(ctx)
	before := ""
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		missing := r.missing(ctx)
		if missing != nil && missing.Error() != before {
			before = missing.Error()
			log.Info("Not ready yet", "because", before)
		}
		return missing == nil, nil
	})
	if err != nil {
		return nil //nolint:nilerr // The only error is that the process is to stop.
	}
	r.Inventory.Open()
	debug.FreeOSMemory() // To list all classes took several times what is held of them.
	log.Info("Ready to bind claims")
	close(r.opened)
	<-ctx.Done()
	return nil
}

// Opened is closed once the inventory is open.
func (r *Registration) Opened() <-chan struct{} { return r.opened }

// Ready is an error until the inventory is open.
func (r *Registration) Ready(ctx context.Context) error {
	if r.Inventory.Snapshot() != nil {
		return nil
	}
	if err := r.missing(ctx); err != nil {
		return err
	}
	return errors.New("all that is registered is known, and is about to be used")
}

// missing says what of all that is registered is not in the inventory yet.
func (r *Registration) missing(ctx context.Context) error {
	claimKinds, classKinds := &v1alpha1.ClaimKindList{}, &v1alpha1.ClassKindList{}
	if err := r.reader.List(ctx, claimKinds); err != nil {
		return fmt.Errorf("cannot list claim kinds: %w", err)
	}
	if err := r.reader.List(ctx, classKinds); err != nil {
		return fmt.Errorf("cannot list class kinds: %w", err)
	}
	for i := range claimKinds.Items {
		if name := claimKinds.Items[i].Name; !r.Inventory.HasClaimKind(name) {
			return fmt.Errorf("claim kind %q is not registered yet", name)
		}
	}
	for i := range classKinds.Items {
		k := &classKinds.Items[i]
		if s := r.state(k.Name); pending(k, s) {
			return fmt.Errorf("the classes of %q, which were offered before, are not known yet: %s", k.Name, s.message)
		}
	}
	return nil
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
