package status

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// maxTypeChecks is how many registrations are checked at once.
const maxTypeChecks = 4

// typeChecks are what the schemas say of the expressions of the ClaimKinds, or of the ClassKinds. They have a controller of their
// own, so that an API server that does not answer delays no status.
type typeChecks struct {
	found   sync.Map // typeCheck by name
	changed loop.Listeners[string]
}

type typeCheck struct {
	revision inventory.Revision
	mistyped []rules.Invalid
	read     map[string]bool // resources
	partial  bool            // a schema could never be read
}

// of a registration; false while it is not checked.
func (t *typeChecks) of(k client.Object) (mistyped []rules.Invalid, known bool) {
	found, _ := t.found.Load(k.GetName())
	c, ok := found.(typeCheck)
	if !ok || c.revision != inventory.RevisionOf(k) {
		return nil, false
	}
	return c.mistyped, !c.partial || len(c.mistyped) > 0
}

// checked sends the listeners what was found of a registration, if it is new. What could not be checked this time, because
// a schema could not be read, stays as it was.
func (t *typeChecks) checked(k client.Object, found registry.Types) {
	before, known := t.of(k)
	next := typeCheck{inventory.RevisionOf(k), found.Mistyped, found.Read, found.Err != nil && !known}
	if found.Err != nil {
		for _, was := range before {
			if !slices.ContainsFunc(found.Mistyped, func(is rules.Invalid) bool { return is.Field == was.Field }) {
				next.mistyped = append(next.mistyped, was)
			}
		}
	}
	t.found.Store(k.GetName(), next)
	if after, isKnown := t.of(k); isKnown != known || !reflect.DeepEqual(before, after) {
		t.changed.Notify(k.GetName())
	}
}

// readers requests the registrations whose last check read the schema of a CRD.
func (t *typeChecks) readers(_ context.Context, crd client.Object) (names []string) {
	t.found.Range(func(name, found any) bool {
		if found.(typeCheck).read[crd.GetName()] { // It has nothing else.
			names = append(names, name.(string)) // Nor other keys.
		}
		return true
	})
	return names
}

// setupTypeChecks adds a controller that checks the registrations of one kind. It checks one again when its spec or a schema
// changes, and all when one of the other kind changes.
func (s *Writer) setupTypeChecks(
	mgr ctrl.Manager, name string, checks *typeChecks, kind, other client.Object, all handler.EventHandler,
) error {
	err := ctrl.NewControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxTypeChecks}).
		For(kind, loop.RevisionChanged).
		Watches(other, all, loop.RevisionChanged).
		WatchesMetadata(cluster.CRD(), loop.ForNames(checks.readers)).
		Complete(loop.ByName(func(ctx context.Context, name string) (ctrl.Result, error) {
			k := kind.DeepCopyObject().(client.Object) // It is one.
			if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, k); err != nil {
				checks.found.Delete(name)
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			found := s.Registration.Types(ctx, k)
			checks.checked(k, found)
			after := registry.RecheckSchemas // One that is not a CRD's changes without an event.
			if errors.Is(found.Err, registry.ErrCRDNotServed) {
				after = registry.RetryCRDAfter
			} else if found.Err != nil {
				after = registry.RetryAfter
			}
			return ctrl.Result{RequeueAfter: after}, nil
		}))
	if err != nil {
		return fmt.Errorf("cannot set up the checks of expressions: %w", err)
	}
	return nil
}
