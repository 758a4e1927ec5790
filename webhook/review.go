// Package webhook answers the API server: it decodes an AdmissionReview, asks the selector to decide, and encodes the answer. If a request
// cannot be granted, the form of the answer depends on who is at fault:
//
//   - the author of the request: HTTP 200, not allowed, with the 4xx status that
//     says why;
//   - classbind: HTTP 503, so that the admin's failurePolicy decides. "Not allowed"
//     would be a refusal even under Ignore;
//   - a caller that is not an API server: HTTP 4xx in plain text.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "k8s.io/apimachinery/pkg/util/json"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

var apiVersion = admissionv1.SchemeGroupVersion.String()

// Reviewer answers one admission request. An error is classbind's fault, unless it is a badRequest. Calls to others are made WithDeadline.
type Reviewer func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

// BindPattern is the pattern of the paths that bind claims. The wildcard is the name of a ClaimKind.
const BindPattern = v1beta1.BindPath + "{" + nameInPath + "}"

const nameInPath = "name"

// Handler serves the answers of a reviewer.
type Handler struct {
	Review Reviewer
	// BodyBudget limits the memory for the bodies of the reviews that a replica reads and answers, in bytes; nil means no limit. The free
	// bytes of each body do not count, so a typical review never waits. Bytes count when they arrive, not when a header announces them.
	BodyBudget *semaphore.Weighted
	// Answered counts the answers but those to dry runs: allowed, refused or unavailable. If nil, nothing counts them.
	Answered *prometheus.CounterVec
	// Log is in the context of every review. controller-runtime's logger takes a lock.
	Log logr.Logger
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
	// A review that has begun is answered, even if the context of its request ends because the server shuts down.
	ctx := logr.NewContext(context.WithoutCancel(r.Context()), h.Log)
	arrived := &arrival{at: time.Now(), registration: r.PathValue(nameInPath)}
	ctx = context.WithValue(ctx, arrivalKey{}, arrived)

	reserved := reservation{ctx: ctx, budget: h.BodyBudget}
	defer reserved.release()
	request, err := decode(w, r, &reserved) //nolint:contextcheck // It is in the reservation.
	var response *admissionv1.AdmissionResponse
	if err == nil {
		markAnswering(ctx)
		err = recovered.Do(func() (err error) { response, err = h.Review(ctx, request); return err })
		if arrived.afterwards != nil {
			defer arrived.afterwards() // Even if the answer panics.
		}
	}
	if err != nil {
		h.fail(w, r, request, err)
		return
	}
	response.UID = request.UID
	makePrintable(response)
	h.reply(w, http.StatusOK, encode(response))
	h.count(request, map[bool]string{true: "allowed", false: "refused"}[response.Allowed])
	// A claim that is bound has a line with more.
	if log := h.Log.V(1); arrived.afterwards == nil && log.Enabled() {
		log.Info("Reviewed", "path", truncate.String(r.URL.Path, v1beta1.MaxShownBytes), "resource", request.Resource.Resource,
			"group", request.Resource.Group, "namespace", request.Namespace, "name", request.Name, "requestUID", string(request.UID),
			"operation", string(request.Operation), "allowed", response.Allowed, "audit", response.AuditAnnotations,
			"dryRun", isDryRun(request))
	}
}

func (h *Handler) count(request *admissionv1.AdmissionRequest, answer string) {
	if h.Answered != nil && (request == nil || !isDryRun(request)) { // The answer is sent: to count takes a lock.
		h.Answered.WithLabelValues(answer).Inc()
	}
}

// reply sends an answer, with its length, without waiting for the handler to return.
func (h *Handler) reply(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		h.Log.V(1).Info("The API server did not wait for the answer", "error", err.Error())
	}
}

// fail answers and logs an error; request is nil if it could not be read.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, request *admissionv1.AdmissionRequest, err error) {
	if bad, ok := errors.AsType[*badRequest](err); ok {
		text := truncate.String(bad.text, v1beta1.MaxMessageBytes)
		http.Error(w, text, bad.status)
		h.Log.Info("Refused a request that is no admission review", "because", text, "from", r.RemoteAddr)
		return
	}
	err = truncate.Error(err)
	// The API server shows the message of a Status to the author of the claim, and would not show plain text.
	status := apierrors.NewServiceUnavailable("classbind cannot answer: " + err.Error()).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, _ := kjson.Marshal(status) // It has numbers, strings, and lists of them.
	h.reply(w, http.StatusServiceUnavailable, body)
	h.count(request, "unavailable")
	if request == nil {
		h.Log.Error(err, "Cannot read a review", "from", r.RemoteAddr)
	} else {
		h.Log.Error(err, "Cannot answer", "resource", request.Resource.Resource, "group", request.Resource.Group,
			"namespace", request.Namespace, "name", request.Name)
	}
}

func decode(w http.ResponseWriter, r *http.Request, reserved *reservation) (*admissionv1.AdmissionRequest, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		method := truncate.String(r.Method, v1beta1.MaxShownBytes)
		return nil, &badRequest{http.StatusMethodNotAllowed, fmt.Sprintf("method %s: POST an AdmissionReview", method)}
	}
	contentType := r.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(contentType); media != "application/json" {
		return nil, &badRequest{
			http.StatusUnsupportedMediaType,
			fmt.Sprintf("Content-Type %q: must be application/json", truncate.String(contentType, v1beta1.MaxShownBytes)),
		}
	}

	body, err := read(w, r, reserved)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, malformed("the request is empty: POST an AdmissionReview")
	}
	request, user, err := decodeReview(body)
	arrivalOf(reserved.ctx).user = user
	return request, err
}

// deadline is shorter than the API server's, so that our answer comes before its timeout.
const deadline = v1beta1.WebhookTimeoutSeconds*time.Second - 500*time.Millisecond

// arrivalKey finds the arrival of a request in the context of its review.
type arrivalKey struct{}

// arrival is what is known of a request beside what an AdmissionRequest has.
type arrival struct {
	at time.Time
	// registration is the name in the path, if that has one.
	registration string
	// user is the userInfo of the AdmissionRequest as JSON, which is decoded where an expression looks at it.
	user []byte
	// afterwards is done once, when the answer has been sent or could not be. A reviewer sets it, such as to log the answer.
	afterwards func()
}

// logOf a review, or the process's.
func logOf(ctx context.Context) logr.Logger {
	if log, err := logr.FromContext(ctx); err == nil {
		return log
	}
	return logf.Log
}

// arrivalOf a request is empty if ctx has none.
func arrivalOf(ctx context.Context) *arrival {
	if a, ok := ctx.Value(arrivalKey{}).(*arrival); ok {
		return a
	}
	return &arrival{}
}

// WithDeadline is for calls to others, such as the API server. The context ends at the deadline of the request, or of one that arrives now
// if ctx has none. A review calls it just before it asks: most claims are bound from memory and need no timer.
func WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, Deadline(ctx))
}

// Deadline of the request, or of one that arrives now if ctx has none.
func Deadline(ctx context.Context) time.Time {
	at := arrivalOf(ctx).at
	if at.IsZero() {
		at = time.Now()
	}
	return at.Add(deadline)
}

// errTooManyBodies means that other reviews hold all the memory for bodies.
var errTooManyBodies = errors.New("too many large reviews are being read; try again in a moment")

// reservation is what one review has taken of the budget; a nil budget limits nothing.
type reservation struct {
	ctx    context.Context
	budget *semaphore.Weighted
	bytes  int64
}

// grow reserves total bytes beyond the free ones. It may wait for other reviews, until the deadline.
func (r *reservation) grow(total int) error {
	more := int64(total) - r.bytes
	if r.budget == nil || more <= 0 {
		return nil
	}
	ctx, cancel := WithDeadline(r.ctx)
	defer cancel()
	if r.budget.Acquire(ctx, more) != nil {
		return errTooManyBodies
	}
	r.bytes += more
	return nil
}

func (r *reservation) release() {
	if r.bytes > 0 {
		r.budget.Release(r.bytes)
	}
}

// read returns the body, or an error at the deadline. The server's own ReadTimeout would start when a connection opens, and a client may
// open one long before it sends anything.
func read(w http.ResponseWriter, r *http.Request, reserved *reservation) ([]byte, error) {
	// A deadline set beforehand, or a read in several pieces, would wake the goroutine of an HTTP/2 connection for every request.
	ended := make(chan struct{})
	timer := time.AfterFunc(deadline, func() {
		defer recovered.Here()
		defer close(ended)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // Only the writer of a test has no deadlines.
	})
	body, err := readBody(r, reserved)
	if !timer.Stop() {
		<-ended // The writer must not be used after the answer.
	}
	return body, err
}

var errTooLarge = &badRequest{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is larger than %d bytes", v1beta1.MaxReviewBytes)}

// readBody reserves and allocates memory only as the body arrives.
func readBody(r *http.Request, reserved *reservation) ([]byte, error) {
	const slack = 512 // room for the read that finds the end
	if r.ContentLength > v1beta1.MaxReviewBytes {
		return nil, errTooLarge
	}
	free := v1beta1.FreeReviewBytes // of the body do not count
	if r.ProtoMajor == 2 {
		free /= v1beta1.MaxStreams // The streams of a connection share what one of HTTP/1.1 has.
	}
	body := make([]byte, 0, min(max(int(r.ContentLength), 0)+slack, free))
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > v1beta1.MaxReviewBytes:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, malformed("cannot read the request: %v", err)
		case len(body) == cap(body):
			size := min(2*cap(body), v1beta1.MaxReviewBytes+slack)
			if r.ContentLength > 0 {
				size = min(size, max(int(r.ContentLength), len(body))+slack)
			}
			if err := reserved.grow(size - free); err != nil {
				return nil, err
			}
			body = slices.Grow(body, size-len(body))
		}
	}
}
