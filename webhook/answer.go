package webhook

import (
	"context"
	"errors"
	"strconv"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/selector"
)

// answer to the creation of a claim.
func answer(ctx context.Context, request *admissionv1.AdmissionRequest, d *selector.Decision) *admissionv1.AdmissionResponse {
	if d.LeftAlone != "" {
		return untouched(d.LeftAlone)
	}
	if len(d.Problems) > 0 {
		kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
		return denied(apierrors.NewInvalid(kind, request.Name, d.Problems), d.Reason())
	}
	logDecision(ctx, request, d)
	response := &admissionv1.AdmissionResponse{Allowed: true}
	warning := d.Warning()
	switch {
	case d.Class == nil && d.View.Kind.Deny:
		resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
		response = denied(apierrors.NewForbidden(resource, request.Name, errors.New(warning)), d.Reason())
	case warning != "":
		response.Warnings = []string{warning}
	}
	if d.Class != nil {
		response.Patch = selector.Patch(d.View.Kind.AddReference(d.Parents, d.Class))
		response.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	response.AuditAnnotations = auditAnnotations(d)
	return response
}

func untouched(reason string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": reason}}
}

func denied(err *apierrors.StatusError, reason string) *admissionv1.AdmissionResponse {
	s := err.ErrStatus
	return &admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: s.Code, Reason: s.Reason, Message: s.Message, Details: s.Details,
		},
		AuditAnnotations: map[string]string{"reason": reason},
	}
}

// auditAnnotations explain the decision in the API server's audit log.
func auditAnnotations(d *selector.Decision) map[string]string {
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

func logDecision(ctx context.Context, request *admissionv1.AdmissionRequest, d *selector.Decision) {
	class := ""
	if d.Class != nil {
		class = d.Class.String()
	}
	name := request.Name
	if name == "" {
		name = "(generated)"
	}
	logr.FromContextOrDiscard(ctx).Info("Decided on a claim",
		"claimKind", d.View.Kind.Name, "namespace", request.Namespace, "name", name, "requestUID", string(request.UID),
		"class", class, "reason", d.Reason(), "strategy", string(d.View.Kind.Strategy.Name),
		"candidates", d.Candidates, "dropped", d.DroppedText(),
		"dryRun", isDryRun(request))
}
