package webhook

import admissionv1 "k8s.io/api/admission/v1"

// restored answers the update of a claim: it puts back a class reference that the update
// removes, and leaves alone all else. It asks for no class, so it does not matter whether
// these are known. What a forger says of the old object only comes back to him.
func restored(v *verdict) (*admissionv1.AdmissionResponse, error) {
	request, kind := v.request, v.view.Kind
	if len(request.OldObject.Raw) == 0 {
		return nil, malformed("request.oldObject: must be set")
	}
	r, err := kind.Restore(request.OldObject.Raw, request.Object.Raw)
	if err != nil {
		return nil, malformed("request.%v", err)
	}
	response := untouched(r.Reason)
	if warning := r.Warning(kind.Reader); warning != "" {
		response.Warnings = []string{warning}
	}
	if r.Patch != nil {
		response.Patch, response.PatchType = r.Patch, new(admissionv1.PatchTypeJSONPatch)
	}
	return response, nil
}
