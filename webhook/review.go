// Package webhook answers the API server: it decodes an AdmissionReview, has
// the selector decide, and encodes the answer. Whose fault it is that a request
// cannot be granted decides the form of the answer:
//
//   - its author's: HTTP 200, not allowed, with the 4xx status that says why;
//   - ours: HTTP 503, so that the failurePolicy that the admin chose decides. A
//     review that is not allowed would be a refusal even under Ignore;
//   - the caller's, which is no API server: HTTP 4xx in plain text.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

var apiVersion = admissionv1.SchemeGroupVersion.String()

// Reviewer answers one admission request. Its error is a fault of ours. What it
// asks somebody else, it asks inTime.
type Reviewer func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

// Handler serves what a Reviewer answers.
type Handler struct {
	Review Reviewer
	// Bodies limit the memory of all reviews of a replica; nil, nothing does.
	Bodies *Bodies
	// Log is in the context of every review. controller-runtime's own takes a lock.
	Log logr.Logger
}

// isDryRun says that the answer is to be all that comes of a request.
func isDryRun(request *admissionv1.AdmissionRequest) bool {
	return request.DryRun != nil && *request.DryRun
}

// badRequest is a fault of the caller.
type badRequest struct {
	status int
	text   string
}

func (b *badRequest) Error() string { return b.text }

func malformed(format string, args ...any) *badRequest {
	return &badRequest{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// ServeHTTP answers an AdmissionReview, admission.k8s.io/v1.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The context of a request ends as soon as the server is told to, and what it
	// has begun to answer is to be answered.
	ctx := arrived(logr.NewContext(context.WithoutCancel(r.Context()), h.Log), time.Now())

	held := held{ctx: ctx, bodies: h.Bodies}
	defer held.release()
	request, err := decode(w, r, &held) //nolint:contextcheck // It is in what is held.
	var response *admissionv1.AdmissionResponse
	if err == nil {
		answering(ctx)
		response, err = h.Review(ctx, request)
	}
	if err != nil {
		h.fail(w, r, request, err)
		return
	}
	response.UID = request.UID
	body, err := encode(response)
	if err != nil {
		unavailable(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(body); err != nil {
		h.Log.V(1).Info("The API server did not wait for the answer", "error", err.Error())
	}
}

// fail to answer a request, which is nil where it could not be read.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, request *admissionv1.AdmissionRequest, err error) {
	if bad := (*badRequest)(nil); errors.As(err, &bad) {
		text := brief.Text(bad.text, v1alpha1.MaxMessageBytes)
		h.Log.Info("Refused what is no admission review", "because", text, "from", r.RemoteAddr)
		http.Error(w, text, bad.status)
		return
	}
	err = brief.Error(err)
	if request == nil {
		h.Log.Error(err, "Cannot read a review", "from", r.RemoteAddr)
	} else {
		h.Log.Error(err, "Cannot answer", "resource", request.Resource.Resource, "group", request.Resource.Group, "namespace", request.Namespace, "name", request.Name)
	}
	unavailable(w, err)
}

// unavailable says so as a Status, of which the API server shows the message to
// whoever created the claim, where it would not show plain text.
func unavailable(w http.ResponseWriter, err error) {
	status := apierrors.NewServiceUnavailable("classbind cannot answer: " + brief.Error(err).Error()).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := kjson.Marshal(status)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(body) // The client gave up; there is no one to tell.
}

func decode(w http.ResponseWriter, r *http.Request, held *held) (*admissionv1.AdmissionRequest, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &badRequest{http.StatusMethodNotAllowed, fmt.Sprintf("method %s: POST an AdmissionReview", brief.Text(r.Method, v1alpha1.MaxShownBytes))}
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		return nil, &badRequest{http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type %q: must be application/json", brief.Text(r.Header.Get("Content-Type"), v1alpha1.MaxShownBytes))}
	}

	body, err := read(w, r, held)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, malformed("the request is empty: POST an AdmissionReview")
	}
	review := reviewed{body: body}
	if err := json.Unmarshal(body, &review, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, malformed("cannot decode the request as JSON: %v", err)
	}
	switch {
	case review.apiVersion != apiVersion:
		return nil, malformed("apiVersion %q: must be %q", review.apiVersion, apiVersion)
	case review.kind != "AdmissionReview":
		return nil, malformed("kind %q: must be \"AdmissionReview\"", review.kind)
	case review.request == nil:
		return nil, malformed("request: must be set")
	case review.request.UID == "":
		return nil, malformed("request.uid: must be set")
	}
	return review.request, nil
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "application/json"
}
