package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// NotEnforced ends the message about a claim kind that was never served.
const NotEnforced = "; it was never served, so until then claims are created as if it were not registered"

// Servable reports whether a claim kind may have an entry in the webhook configuration.
func (r *Registration) Servable(ctx context.Context, k *v1beta1.ClaimKind) bool {
	view := r.Inventory.Snapshot()[k.Name]
	return view != nil && view.Kind.Revision == inventory.RevisionOf(k) && Unservable(ctx, r, k, view) == nil
}

// looker knows what the API server says of claims.
type looker interface {
	PathsOf(k *v1beta1.ClaimKind) (Paths, bool)
	LookUpClaims(ctx context.Context, k *v1beta1.ClaimKind, verbs ...string) (cluster.Resource, error)
}

// Unservable is why a claim kind gets no entry in the webhook configuration, nil if it may have one: a registration that was never served
// must not stop the claims of others.
func Unservable(ctx context.Context, r looker, k *v1beta1.ClaimKind, view *selector.View) *inventory.Fault {
	if view.Fault != nil {
		return view.Fault
	}
	paths, known := r.PathsOf(k)
	condition := paths.Condition(view)
	_, err := r.LookUpClaims(ctx, k, "create")
	switch {
	case err != nil:
		return &inventory.Fault{Reason: ReasonFor(err), Text: err.Error()}
	case len(view.Classes) == 0 && len(view.Unread) > 0:
		return &inventory.Fault{Reason: v1beta1.ReasonNoClassKind, Text: "classbind can read the classes of no class kind that serves it" +
			": see the condition " + v1beta1.ConditionClassKindsRead + NotEnforced}
	case len(view.Classes) == 0:
		return &inventory.Fault{Reason: v1beta1.ReasonNoClassKind, Text: "no class kind serves it: " +
			"create a ClassKind for it, which names it in spec.claimKinds or which it names in spec.classes.kinds, " +
			"or install its CRD" + NotEnforced}
	case !known:
		return &inventory.Fault{Reason: v1beta1.ReasonNotSynced, Text: "its paths are not compared with the schema of the claims yet"}
	case condition.Status == metav1.ConditionUnknown && condition.Reason != v1beta1.ReasonSchemaUnknown,
		condition.Reason == v1beta1.ReasonAllReferencesRefused:
		return &inventory.Fault{Reason: condition.Reason, Text: condition.Message + NotEnforced}
	}
	return nil
}

// Offered reports whether the classes of a kind are offered to claims of one of the kinds that it serves.
func (r *Registration) Offered(k *v1beta1.ClassKind) bool {
	classes := r.State(k.Name).Classes
	if classes == nil {
		return false
	}
	snapshot, refused := r.Inventory.Snapshot(), false
	for _, name := range classes.Kind.ClaimKinds {
		view := snapshot[name]
		switch {
		case view == nil:
		case view.FaultOf(k.Name) == nil:
			return true
		default:
			refused = true
		}
	}
	return !refused
}
