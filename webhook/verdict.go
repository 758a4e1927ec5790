package webhook

import (
	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/brief"
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
	// restored has no patch if the claim was not updated, or was left alone.
	restored selector.Restoration

	// response is nil with an error.
	response *admissionv1.AdmissionResponse
	err      error
}

// tell logs and counts. Errors and claims that are left alone have no line of their own
// here; dry runs are not counted.
func (v *verdict) tell() {
	outcome := outcomeOf(&v.decision, v.response, v.err)
	switch outcome {
	case bound, unmatchedAdmitted, unmatchedWaiting, unmatchedDenied:
		v.logDecision()
	case restoredReference:
		v.logRestoration()
	default:
	}
	if !isDryRun(v.request) && !isBadRequest(v.err) {
		v.metrics.reviewed(v.view, &v.decision, outcome)
	}
}

func (v *verdict) logDecision() {
	d, annotations := &v.decision, v.response.AuditAnnotations
	name := v.request.Name
	if name == "" {
		name = "(generated)"
	}
	v.log.Info("Decided on a claim",
		"claimKind", d.View.Kind.Name, "namespace", v.request.Namespace, "name", name, "requestUID", string(v.request.UID),
		"class", annotations["class"], "reason", d.Reason(), "strategy", string(d.View.Kind.Strategy.Name),
		"candidates", d.Candidates, "dropped", annotations["dropped"],
		"dryRun", isDryRun(v.request))
}

func (v *verdict) logRestoration() {
	v.log.Info("Restored a class reference that an update removed",
		"claimKind", v.view.Kind.Name, "namespace", v.request.Namespace, "name", v.request.Name, "requestUID", string(v.request.UID),
		"class", brief.Text(v.restored.Class, v1alpha1.MaxShownBytes), "reason", v.restored.Reason, "dryRun", isDryRun(v.request))
}
