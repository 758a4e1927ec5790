package webhook

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

// decodedReview is what is read of an AdmissionReview. Everything else, such as the options, is skipped.
type decodedReview struct {
	APIVersion word            `json:"apiVersion"`
	Kind       word            `json:"kind"`
	Request    *decodedRequest `json:"request"`
}

type decodedRequest struct {
	UID             word      `json:"uid"`
	Kind            names     `json:"kind"`
	Resource        names     `json:"resource"`
	RequestResource *names    `json:"requestResource"`
	SubResource     word      `json:"subResource"`
	Name            word      `json:"name"`
	Namespace       word      `json:"namespace"`
	Operation       word      `json:"operation"`
	DryRun          *bool     `json:"dryRun"`
	UserInfo        spanOfRaw `json:"userInfo"` // Few claims need it.
	Object          spanOfRaw `json:"object"`
	OldObject       spanOfRaw `json:"oldObject"`
}

// names of a kind or a resource.
type names struct {
	Group    word `json:"group"`
	Version  word `json:"version"`
	Kind     word `json:"kind"`
	Resource word `json:"resource"`
}

func (n *names) resource() metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: string(n.Group), Version: string(n.Version), Resource: string(n.Resource)}
}

// of a body, whose objects it shares.
func (r *decodedRequest) of(body []byte) *admissionv1.AdmissionRequest {
	request := &admissionv1.AdmissionRequest{
		UID:         types.UID(r.UID),
		Kind:        metav1.GroupVersionKind{Group: string(r.Kind.Group), Version: string(r.Kind.Version), Kind: string(r.Kind.Kind)},
		Resource:    r.Resource.resource(),
		SubResource: string(r.SubResource),
		Name:        string(r.Name),
		Namespace:   string(r.Namespace),
		Operation:   admissionv1.Operation(r.Operation),
		DryRun:      r.DryRun,
		Object:      runtime.RawExtension{Raw: r.Object.of(body)},
		OldObject:   runtime.RawExtension{Raw: r.OldObject.of(body)},
	}
	if r.RequestResource != nil {
		request.RequestResource = new(r.RequestResource.resource())
	}
	return request
}

// word is a string that is no longer than any name. A longer one is refused before it is copied.
type word string

// UnmarshalJSONFrom is called by package json.
func (w *word) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	quoted, err := from.ReadValue()
	switch {
	case err != nil || quoted.Kind() == jsontext.KindNull:
		return err
	case quoted.Kind() != jsontext.KindString:
		return errors.New("must be a string")
	case len(quoted) > fields.EscapeFactor*v1beta1.MaxNameBytes+len(`""`):
		return errTooLongName
	}
	text := fields.Unquoted(quoted)
	if len(text) > v1beta1.MaxNameBytes {
		return errTooLongName
	}
	*w = word(text)
	return nil
}

var errTooLongName = fmt.Errorf("must have at most %d bytes", v1beta1.MaxNameBytes)

// spanOfRaw is where a value stands in the body. The decoder has proved it valid.
type spanOfRaw struct{ begin, end int64 }

// UnmarshalJSONFrom is called by package json.
func (s *spanOfRaw) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	value, err := from.ReadValue()
	if err == nil && value.Kind() != jsontext.KindNull {
		s.end = from.InputOffset()
		s.begin = s.end - int64(len(value))
	}
	return err
}

func (s spanOfRaw) of(body []byte) []byte {
	if s.end == 0 {
		return nil
	}
	return body[s.begin:s.end:s.end]
}

// encode writes the answer as an AdmissionReview.
func encode(r *admissionv1.AdmissionResponse) ([]byte, error) {
	return json.Marshal(&admissionv1.AdmissionReview{TypeMeta: reviewType, Response: r})
}

// makePrintable escapes what a client, a terminal or a log shows of an answer, which has parts of
// claims and classes. The API server drops a warning with a control character.
func makePrintable(r *admissionv1.AdmissionResponse) {
	for i, warning := range r.Warnings {
		r.Warnings[i] = truncate.Printable(warning)
	}
	for key, text := range r.AuditAnnotations {
		if printable := truncate.Printable(text); printable != text {
			r.AuditAnnotations[key] = printable
		}
	}
	if r.Result == nil {
		return
	}
	r.Result.Message = truncate.Printable(r.Result.Message)
	if r.Result.Details == nil {
		return
	}
	for i := range r.Result.Details.Causes {
		cause := &r.Result.Details.Causes[i]
		cause.Field, cause.Message = truncate.Printable(cause.Field), truncate.Printable(cause.Message)
	}
}
