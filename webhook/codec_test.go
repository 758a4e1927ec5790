package webhook

import (
	"testing"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMakePrintable(t *testing.T) {
	const hostile, shown = "a\x1b[2J\n::error::b\u202e", `a\x1b[2J\n::error::b\u202e`
	got := &admissionv1.AdmissionResponse{
		Warnings: []string{hostile, "ä"}, AuditAnnotations: map[string]string{"reason": hostile},
		Result: &metav1.Status{Message: hostile, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: hostile, Message: hostile}}}},
	}
	makePrintable(got)
	assert.Equal(t, &admissionv1.AdmissionResponse{
		Warnings: []string{shown, "ä"}, AuditAnnotations: map[string]string{"reason": shown},
		Result: &metav1.Status{Message: shown, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: shown, Message: shown}}}},
	}, got, "We should answer nothing that a terminal obeys, or for which the API server drops a warning.")
}
