package webhook

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/selector"
)

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
// alone whatever is not a creation, a claim kind that is registered no more,
// and a claim that is settled or being deleted; refuses a malformed selector;
// and binds the claim, or answers as its kind does where there is no class.
func (b *Binder) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if request.Operation != admissionv1.Create || request.SubResource != "" {
		return untouched("NotACreation"), nil
	}
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	snapshot := b.Snapshot()
	if snapshot == nil {
		return nil, errors.New("not all registered classes have been listed yet; try again in a moment")
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
	if len(errs) > 0 {
		kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
		return denied(apierrors.NewInvalid(kind, request.Name, errs), "MalformedClaim"), nil
	}
	if claim.Settled != "" {
		return untouched("Settled"), nil
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
		return nil, fmt.Errorf("claim kind %q is not registered on this replica yet; try again in a moment", claimKind)
	}
	return untouched("NotRegistered"), nil
}

func answer(request *admissionv1.AdmissionRequest, object map[string]any, d selector.Decision) (*admissionv1.AdmissionResponse, error) {
	warning := d.Warning()
	if d.Class == nil && d.View.Kind.Deny {
		resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
		return denied(apierrors.NewForbidden(resource, request.Name, errors.New(warning)), d.Reason()), nil
	}
	response := &admissionv1.AdmissionResponse{Allowed: true}
	if warning != "" {
		response.Warnings = []string{warning}
	}
	if d.Class == nil {
		return response, nil
	}
	patch, err := addPatch(object, d.View.Kind.ReferencePath(), d.View.Kind.Reference(d.Class))
	if err != nil {
		return nil, fmt.Errorf("cannot encode the class reference: %w", err)
	}
	jsonPatch := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = patch, &jsonPatch
	return response, nil
}

func untouched(reason string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": reason}}
}

func denied(err *apierrors.StatusError, reason string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{
		Result:           &metav1.Status{Status: metav1.StatusFailure, Code: err.ErrStatus.Code, Reason: err.ErrStatus.Reason, Message: err.ErrStatus.Message, Details: err.ErrStatus.Details},
		AuditAnnotations: map[string]string{"reason": reason},
	}
}

// auditAnnotations say why, in the API server's audit log.
func auditAnnotations(d selector.Decision) map[string]string {
	annotations := map[string]string{
		"reason":     d.Reason(),
		"candidates": strconv.Itoa(d.Candidates),
		"strategy":   string(d.View.Kind.Strategy.Name),
	}
	if d.Class != nil {
		annotations["class"] = d.Class.String()
	}
	if dropped := d.DroppedText(); dropped != "" {
		annotations["dropped"] = dropped
	}
	return annotations
}

func logDecision(ctx context.Context, request *admissionv1.AdmissionRequest, d selector.Decision) {
	class := ""
	if d.Class != nil {
		class = d.Class.String()
	}
	name := request.Name
	if name == "" {
		name = "(generated)"
	}
	logf.FromContext(ctx).Info("Decided on a claim",
		"claimKind", d.View.Kind.Name, "namespace", request.Namespace, "name", name, "requestUID", request.UID,
		"class", class, "reason", d.Reason(), "strategy", d.View.Kind.Strategy.Name,
		"candidates", d.Candidates, "dropped", d.DroppedText(),
		"dryRun", request.DryRun != nil && *request.DryRun)
}
