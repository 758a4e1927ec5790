package status

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/rules"
)

// maxTypeChecks is how many registrations are checked at once.
const maxTypeChecks = 4

// typeChecks are the expressions of the ClaimKinds, or of the ClassKinds, that fail by the schemas of what they look at. They
// have a controller of their own, so that an API server that does not answer delays no status.
type typeChecks struct {
	found   sync.Map // mistyped by name
	changed loop.Listeners[string]
}

// mistyped expressions of a registration of this generation.
type mistyped struct {
	generation int64
	all        []rules.Invalid
}

// of a registration; none while it is not checked.
func (t *typeChecks) of(k client.Object) []rules.Invalid {
	found, _ := t.found.Load(k.GetName())
	if m, ok := found.(mistyped); ok && m.generation == k.GetGeneration() {
		return m.all
	}
	return nil
}

// checked reports what was found of a registration.
func (t *typeChecks) checked(k client.Object, all []rules.Invalid) {
	next := mistyped{k.GetGeneration(), all}
	if before, _ := t.found.Swap(k.GetName(), next); len(all) > 0 || before != nil && !reflect.DeepEqual(before, next) {
		t.changed.Notify(k.GetName())
	}
}

// setupTypeChecks adds a controller that checks one kind of registration, of which all requests every one, when it, one of the other
// kind, or a CRD changes.
func setupTypeChecks[K any, P interface {
	*K
	client.Object
}](
	mgr ctrl.Manager, name string, checks *typeChecks, other client.Object, all handler.EventHandler,
	check func(context.Context, P) ([]rules.Invalid, error),
) error {
	err := ctrl.NewControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxTypeChecks}).
		For(P(new(K)), loop.RevisionChanged).
		Watches(other, all, loop.RevisionChanged).
		WatchesMetadata(cluster.CRD(), all).
		Complete(loop.ByName(func(ctx context.Context, name string) (ctrl.Result, error) {
			k := P(new(K))
			if err := mgr.GetClient().Get(ctx, client.ObjectKey{Name: name}, k); err != nil {
				checks.found.Delete(name)
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			found, err := check(ctx, k)
			if err != nil {
				return ctrl.Result{}, err
			}
			checks.checked(k, found)
			return ctrl.Result{RequeueAfter: registry.RecheckSchemas}, nil // One that is not a CRD's changes without an event.
		}))
	if err != nil {
		return fmt.Errorf("cannot set up the checks of expressions: %w", err)
	}
	return nil
}
