package webhook

import (
	"context"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/brief"
)

// restored answers the update of a claim: it puts back a class reference that the update
// removes, and leaves alone all else. It asks for no class, so it does not matter whether
// these are known. What a forger says of the old object only comes back to him.
func restored(
	ctx context.Context, request *admissionv1.AdmissionRequest, kind *selector.ClaimKind,
) (*admissionv1.AdmissionResponse, error) {
	if len(request.OldObject.Raw) == 0 {
		return nil, malformed("request.oldObject: must be set")
	}
	r, err := kind.Restore(request.OldObject.Raw, request.Object.Raw)
	if err != nil {
		return nil, malformed("request.%v", err)
	}
	response := untouched(r.Reason)
	if warning := r.Warning(kind); warning != "" {
		response.Warnings = []string{warning}
	}
	if r.Patch == nil {
		return response, nil
	}
	response.Patch, response.PatchType = r.Patch, new(admissionv1.PatchTypeJSONPatch)
	logr.FromContextOrDiscard(ctx).Info("Put a class reference back that an update removed",
		"claimKind", kind.Name, "namespace", request.Namespace, "name", request.Name, "requestUID", string(request.UID),
		"class", brief.Text(r.Class, v1alpha1.MaxShownBytes), "reason", r.Reason, "dryRun", isDryRun(request))
	return response, nil
}
