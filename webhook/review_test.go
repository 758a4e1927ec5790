package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
)

const goodReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"5e1f"}}`

func admit(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return &admissionv1.AdmissionResponse{Allowed: true}, nil
}

func serve(t *testing.T, review Reviewer) (url string) {
	t.Helper()
	server := httptest.NewServer(review)
	t.Cleanup(server.Close)
	return server.URL
}

// send a request and return the status, the header and the text of the answer.
func send(t *testing.T, method, url, contentType, body string) (status int, header http.Header, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { assert.NoError(t, response.Body.Close()) }()
	b, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(b)
}

func TestReviewerRefusesWhatIsNoReview(t *testing.T) {
	url := serve(t, admit)
	type want struct {
		status int
		text   string
	}
	for name, tc := range map[string]struct {
		reason              string
		method, media, body string
		want                want
	}{
		"Empty": {
			reason: "We should say that there is no body, rather than that it is no JSON.",
			want:   want{http.StatusBadRequest, "the request is empty: POST an AdmissionReview"},
		},
		"Truncated": {
			reason: "We should refuse a body that ends too early.",
			body:   goodReview[:len(goodReview)-1],
			want:   want{http.StatusBadRequest, "cannot decode the request as JSON: unexpected end of JSON input"},
		},
		"NotJSON": {
			reason: "We should refuse a body that is no JSON.",
			body:   "apiVersion: admission.k8s.io/v1",
			want:   want{http.StatusBadRequest, "cannot decode the request as JSON: invalid character"},
		},
		"Array": {
			reason: "We should refuse JSON that is no object.",
			body:   "[" + goodReview + "]",
			want:   want{http.StatusBadRequest, "cannot decode the request as JSON: json: cannot unmarshal array"},
		},
		"FieldOfAnotherType": {
			reason: "We should name the field whose type is wrong.",
			body:   `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}`,
			want:   want{http.StatusBadRequest, "request.uid"},
		},
		"WrongVersion": {
			reason: "We should refuse v1beta1, whose answer has another form.",
			body:   strings.Replace(goodReview, "/v1", "/v1beta1", 1),
			want:   want{http.StatusBadRequest, `apiVersion "admission.k8s.io/v1beta1": must be "admission.k8s.io/v1"`},
		},
		"WrongKind": {
			reason: "We should refuse another kind.",
			body:   strings.Replace(goodReview, "AdmissionReview", "ConversionReview", 1),
			want:   want{http.StatusBadRequest, `kind "ConversionReview": must be "AdmissionReview"`},
		},
		"NoRequest": {
			reason: "We should refuse a review that asks for nothing.",
			body:   `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
			want:   want{http.StatusBadRequest, "request: must be set"},
		},
		"NoUID": {
			reason: "We should refuse a request to which no answer can be matched.",
			body:   `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"name":"db"}}`,
			want:   want{http.StatusBadRequest, "request.uid: must be set"},
		},
		"WrongContentType": {
			reason: "We should refuse a media type that we cannot decode.",
			media:  "application/yaml",
			body:   goodReview,
			want:   want{http.StatusUnsupportedMediaType, `Content-Type "application/yaml": must be application/json`},
		},
		"Get": {
			reason: "We should refuse any method but POST.",
			method: http.MethodGet,
			want:   want{http.StatusMethodNotAllowed, "method GET: POST an AdmissionReview"},
		},
		"TooLarge": {
			reason: "We should read no more than the limit, and name it.",
			body:   strings.Repeat(" ", 8<<20),
			want:   want{http.StatusRequestEntityTooLarge, "the request is larger than 4194304 bytes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			method, media := tc.method, tc.media
			if method == "" {
				method = http.MethodPost
			}
			if media == "" {
				media = "application/json"
			}
			status, header, text := send(t, method, url, media, tc.body)
			assert.Equal(t, tc.want.status, status, tc.reason)
			assert.Equal(t, "text/plain; charset=utf-8", header.Get("Content-Type"), tc.reason)
			if status == http.StatusMethodNotAllowed {
				assert.Equal(t, http.MethodPost, header.Get("Allow"), "We should say which method would do, as RFC 9110 asks.")
			}
			assert.Contains(t, text, tc.want.text, tc.reason)

			status, _, _ = send(t, http.MethodPost, url, "application/json", goodReview)
			assert.Equal(t, http.StatusOK, status, "We should go on to serve good requests.")
		})
	}
}

func TestReviewerAnswers(t *testing.T) {
	type want struct {
		status int
		media  string
		text   string
	}
	const (
		json  = "application/json"
		plain = "text/plain; charset=utf-8"
	)
	for name, tc := range map[string]struct {
		reason string
		media  string
		review Reviewer
		want   want
	}{
		"Allowed": {
			reason: "We should give back the uid in a review of the version that was asked.",
			media:  "application/json; charset=utf-8",
			review: admit,
			want:   want{http.StatusOK, json, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"5e1f","allowed":true}}`},
		},
		"FaultOfTheUser": {
			reason: "We should refuse with HTTP 200 what its author has to mend.",
			review: func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				return denied(apierrors.NewForbidden(schema.GroupResource{Resource: "dbs"}, "db", errors.New("no class")), "NoMatchingClass"), nil
			},
			want: want{http.StatusOK, json, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"5e1f","allowed":false,` +
				`"status":{"metadata":{},"status":"Failure","message":"dbs \"db\" is forbidden: no class","reason":"Forbidden","details":{"name":"db","kind":"dbs"},"code":403},` +
				`"auditAnnotations":{"reason":"NoMatchingClass"}}}`},
		},
		"FaultOfOurs": {
			reason: "We should answer 503 where we cannot decide, so that the failurePolicy does.",
			review: func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				return nil, errors.New("cannot list the classes of \"golds\": context deadline exceeded")
			},
			want: want{http.StatusServiceUnavailable, "application/json", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"classbind cannot answer: cannot list the classes of \"golds\": context deadline exceeded","reason":"ServiceUnavailable","code":503}`},
		},
		"FaultOfTheCaller": {
			reason: "We should answer 4xx to a review that no API server sends.",
			review: func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				return nil, &badRequest{http.StatusBadRequest, "request.object: must be an object"}
			},
			want: want{http.StatusBadRequest, plain, "request.object: must be an object\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sent := tc.media
			if sent == "" {
				sent = json
			}
			status, header, text := send(t, http.MethodPost, serve(t, tc.review), sent, goodReview)
			assert.Equal(t, tc.want, want{status, header.Get("Content-Type"), text}, tc.reason)
		})
	}
}

func TestReviewerHasADeadline(t *testing.T) {
	var left time.Duration
	url := serve(t, func(ctx context.Context, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		end, _ := ctx.Deadline()
		left = time.Until(end)
		return &admissionv1.AdmissionResponse{}, nil
	})
	status, _, _ := send(t, http.MethodPost, url, "application/json", goodReview)
	require.Equal(t, http.StatusOK, status)
	assert.Positive(t, left, "We should have time to answer.")
	assert.Less(t, left, v1alpha1.WebhookTimeoutSeconds*time.Second, "We should give up before the API server does.")
}
