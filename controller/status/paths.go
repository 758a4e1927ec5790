package status

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/openapi"
)

// recheckPaths is how often a schema is read again: one that is not a CRD's changes
// without an event.
const recheckPaths = 5 * time.Minute

// Paths compares ClaimKinds with the schemas of their claims, when either changes. It
// keeps what it found, and no schema.
type Paths struct {
	// Schema reads that of a claim kind.
	Schema func(ctx context.Context, k *v1alpha1.ClaimKind) (*openapi.Schema, error)
	// Client reads ClaimKinds.
	Client client.Reader

	checks  sync.Map // of checkedPaths by the name of the claim kind
	changed loop.Listeners[string]
}

// checkedPaths is what was found. If err is set, the schema could not be read.
type checkedPaths struct {
	revision selector.Revision
	check    selector.PathsCheck
	err      error
}

// SetupWithManager adds the controller.
func (p *Paths) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("claimkind-paths").
		WithOptions(controller.Options{MaxConcurrentReconciles: registry.MaxLookUps}). // One API server that hangs delays no other kind.
		For(&v1alpha1.ClaimKind{}, registry.FaultChanged).
		WatchesMetadata(cluster.CRD(), registry.ClaimKindsOfCRD(p.Client)).
		Complete(loop.ByName(p.reconcile))
	if err != nil {
		return fmt.Errorf("cannot set up the check of paths: %w", err)
	}
	return nil
}

func (p *Paths) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	k := &v1alpha1.ClaimKind{}
	err := p.Client.Get(ctx, client.ObjectKey{Name: name}, k)
	if apierrors.IsNotFound(err) {
		p.checks.Delete(name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot get claim kind %q: %w", name, err)
	}
	now := checkedPaths{revision: selector.RevisionOf(k)}
	if s, err := p.Schema(ctx, k); err != nil {
		now.err = err
	} else {
		now.check = selector.NewClaimKind(k).CheckPaths(s)
	}
	if before, _ := p.checks.Swap(name, now); !reflect.DeepEqual(before, now) {
		p.changed.Notify(name)
	}
	again := recheckPaths
	switch {
	case errors.Is(now.err, registry.ErrCRDNotServed):
		again = registry.RetryCRDAfter
	case now.err != nil:
		again = registry.RetryAfter
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// describe writes into the status whether the paths are valid, and what the schema requires.
// Until they are checked, this stays: it may be the last leader's. That no claim can be
// bound stays, too, while the schema cannot be read: only another schema mends it.
func (p *Paths) describe(k *v1alpha1.ClaimKind, view *selector.View) {
	known, _ := p.checks.Load(k.Name)
	checked, ok := known.(checkedPaths)
	unread := checked.err != nil && !errors.Is(checked.err, openapi.ErrNoSchema)
	if !ok || checked.revision != selector.RevisionOf(k) || unread && selector.PathsFault(k) != nil {
		return
	}
	if !unread {
		k.Status.Required, k.Status.SelectorAbsent = checked.check.Required, checked.check.SelectorAbsent
	}
	setCondition(&k.Status.Conditions, checked.condition(view), k.Generation)
}

func (c checkedPaths) condition(view *selector.View) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionPathsValid, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonSchemaUnknown}
	reason, problem := view.PathsProblem(c.check)
	switch {
	case c.err != nil:
		if !errors.Is(c.err, openapi.ErrNoSchema) {
			condition.Reason = registry.ReasonFor(c.err)
		}
		condition.Message = fmt.Sprintf("the paths cannot be compared with the schema of the claims: %v", c.err)
	case reason != "":
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, problem
	case c.check.Unknown != "":
		condition.Message = c.check.Unknown
	default:
		condition = met(v1alpha1.ConditionPathsValid, v1alpha1.ReasonPathsValid, "the schema of the claims has the fields of every path")
		if len(c.check.Absent) > 0 {
			condition.Message += ", but for the defaults " + strings.Join(c.check.Absent, " and ") + ", which no claim needs"
		}
	}
	return condition
}
