package webhook

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/selector"
)

var errNotListed = errors.New("not all registered classes have been listed yet; try again in a moment")

func errNotHeardOf(claimKind string) error {
	return fmt.Errorf("claim kind %q is not registered on this replica yet; try again in a moment", claimKind)
}

// Binder gives claims their class.
type Binder struct {
	// Snapshot is what is known now; nil, nothing yet.
	Snapshot func() selector.Snapshot
	// Live reads the classes that a claim asks for from the API server itself,
	// for a claim for which the snapshot has none: the class may have been
	// created a moment ago.
	Live func(context.Context, *selector.View, selector.Claim) (*selector.View, error)
	// Registered asks the API server itself whether there is a ClaimKind, where
	// the snapshot has none.
	Registered func(ctx context.Context, claimKind string) (bool, error)
	// Fresh is a random number.
	Fresh func() uint64
}

// Review binds the claim whose creation is asked for. In this order, it leaves
// alone whatever is not a creation; cannot answer before all classes are known;
// leaves alone a claim kind that is registered no more; cannot answer for one
// whose registration is at fault; leaves alone a claim that is being deleted or
// settled; refuses a malformed one; and binds the claim, or answers as its kind
// does where there is no class.
func (b *Binder) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if request.Operation != admissionv1.Create || request.SubResource != "" {
		return untouched("NotACreation"), nil
	}
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	snapshot := b.Snapshot()
	if snapshot == nil {
		return nil, errNotListed
	}
	view := snapshot[resource.String()]
	if view == nil {
		return b.unknown(ctx, resource.String())
	}
	if view.Fault != nil {
		return nil, view.Fault
	}

	var object map[string]any
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return nil, malformed("request.object: must be an object: %v", err)
	}
	if metadata, _ := object["metadata"].(map[string]any); metadata["deletionTimestamp"] != nil {
		return untouched("BeingDeleted"), nil
	}
	claim, errs := view.Kind.NewClaim(request.Namespace, request.Name, object)
	if claim.Settled != "" {
		return untouched("Settled"), nil
	}
	if len(errs) > 0 {
		kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
		return denied(apierrors.NewInvalid(kind, request.Name, errs), "MalformedClaim"), nil
	}

	decision := view.Choose(claim, b.Fresh())
	if decision.Class == nil {
		live, err := b.Live(ctx, view, claim)
		if err != nil {
			return nil, err
		}
		if decision = live.Choose(claim, b.Fresh()); decision.Class == nil {
			decision.View = view // What was read is what matches; the message says among how many.
		}
	}
	logDecision(ctx, request, decision)
	response, err := answer(request, object, decision)
	if err != nil {
		return nil, err
	}
	response.AuditAnnotations = auditAnnotations(decision)
	return response, nil
}

// unknown answers for a claim kind that the snapshot does not have. Either its
// ClaimKind was deleted, and what names it in the webhook configuration is about
// to go, or it was created, and we are about to hear of it.
func (b *Binder) unknown(ctx context.Context, claimKind string) (*admissionv1.AdmissionResponse, error) {
	registered, err := b.Registered(ctx, claimKind)
	if err != nil {
		return nil, err
	}
	if registered {
		return nil, errNotHeardOf(claimKind)
	}
	return untouched("NotRegistered"), nil
}
