package webhook

import (
	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/selector"
)

// verdict is the outcome of a claim's review, and how it came about. It is told after the
// answer: while the claim waits, to log it would take as long as to choose its class.
type verdict struct {
	metrics *Metrics
	log     logr.Logger
	request *admissionv1.AdmissionRequest

	// view is nil for a claim kind that is not known.
	view *selector.View
	// decision has no view if none was made.
	decision selector.Decision

	// response is nil with an error.
	response *admissionv1.AdmissionResponse
	err      error
}

// record logs at the level debug, and counts. Errors have lines of their own; dry runs are not counted.
func (v *verdict) record() {
	outcome := outcomeOf(&v.decision, v.response, v.err)
	if log := v.log.V(1); log.Enabled() && v.err == nil {
		log.Info("Reviewed a claim", "resource", v.request.Resource.Resource, "group", v.request.Resource.Group,
			"namespace", v.request.Namespace, "name", v.request.Name, "requestUID", string(v.request.UID),
			"outcome", outcomeNames[outcome], "audit", v.response.AuditAnnotations, "dryRun", isDryRun(v.request))
	}
	if !isDryRun(v.request) && !isBadRequest(v.err) {
		v.metrics.reviewed(v.view, &v.decision, outcome)
	}
}
