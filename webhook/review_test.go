package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
)

const goodReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"5e1f"}}`

func admit(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return &admissionv1.AdmissionResponse{Allowed: true}, nil
}

func TestReviewerRefusesWhatIsNoReview(t *testing.T) {
	h := &Handler{Review: Reviewer(admit).Unnamed()}
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
			want:   want{http.StatusBadRequest, "cannot decode the request as JSON: jsontext: unexpected EOF"},
		},
		"NotJSON": {
			reason: "We should refuse a body that is no JSON.",
			body:   "apiVersion: admission.k8s.io/v1",
			want:   want{http.StatusBadRequest, "cannot decode the request as JSON: jsontext: invalid character 'a' at start of value"},
		},
		"Array": {
			reason: "We should refuse JSON that is no object.",
			body:   "[" + goodReview + "]",
			want:   want{http.StatusBadRequest, `cannot unmarshal JSON array`},
		},
		"Null": {
			reason: "We should refuse a review that is none.",
			body:   "null",
			want:   want{http.StatusBadRequest, `apiVersion "": must be "admission.k8s.io/v1"`},
		},
		"TwoReviews": {
			reason: "We should not answer one of two reviews.",
			body:   goodReview + goodReview,
			want:   want{http.StatusBadRequest, "jsontext: invalid character '{' after top-level value"},
		},
		"NotUTF8": {
			reason: "We should refuse text that is none, since we could not write it into the log.",
			body:   strings.Replace(goodReview, "5e1f", "5e\xff", 1),
			want:   want{http.StatusBadRequest, `jsontext: invalid UTF-8 within "/request/uid"`},
		},
		"Deep": {
			reason: "We should not let ourselves be led down until we have no memory left.",
			body:   strings.Repeat(`{"a":`, (4<<20)/5),
			want:   want{http.StatusBadRequest, "jsontext: exceeded max depth"},
		},
		"DeepInTheObject": {
			reason: "We should not let ourselves be led down in what we pass on unread.",
			body:   strings.Replace(goodReview, `"5e1f"`, `"5e1f","object":{"spec":`+strings.Repeat("[", 4<<20), 1),
			want:   want{http.StatusBadRequest, "jsontext: exceeded max depth"},
		},
		"InAnotherCase": {
			reason: "We should read names as the API server writes them.",
			body:   strings.Replace(goodReview, `"uid"`, `"UID"`, 1),
			want:   want{http.StatusBadRequest, "request.uid: must be set"},
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
			body:   strings.Repeat(" ", v1beta1.MaxReviewBytes+1),
			want:   want{http.StatusRequestEntityTooLarge, "the request is larger than 29360128 bytes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := posted(h, tc.body, func(r *http.Request) {
				r.Method = cmp.Or(tc.method, http.MethodPost)
				r.Header.Set("Content-Type", cmp.Or(tc.media, "application/json"))
			})
			assert.Equal(t, tc.want.status, w.Code, tc.reason)
			assert.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"), tc.reason)
			if w.Code == http.StatusMethodNotAllowed {
				assert.Equal(t, http.MethodPost, w.Header().Get("Allow"), "We should say which method would do, as RFC 9110 asks.")
			}
			assert.Contains(t, w.Body.String(), tc.want.text, tc.reason)
			assert.Less(t, w.Body.Len(), 500, "We should let nobody fill our log.")
			assert.Equal(t, http.StatusOK, posted(h, goodReview).Code, "We should go on to serve good requests.")
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
			w := posted(&Handler{Review: tc.review.Unnamed()}, goodReview, func(r *http.Request) {
				r.Header.Set("Content-Type", cmp.Or(tc.media, json))
			})
			assert.Equal(t, tc.want, want{w.Code, w.Header().Get("Content-Type"), w.Body.String()}, tc.reason)
		})
	}
}

// TestReviewerNamesTheField whose type is wrong.
func TestReviewerNamesTheField(t *testing.T) {
	h := &Handler{Review: Reviewer(admit).Unnamed()}
	for pointer, field := range map[string]string{
		"/request/uid":               `"uid":7`,
		"/request/kind":              `"kind":"PostgreSQLInstance"`,
		"/request/kind/kind":         `"kind":{"kind":["PostgreSQLInstance"]}`,
		"/request/resource":          `"resource":[]`,
		"/request/resource/group":    `"resource":{"group":1}`,
		"/request/resource/resource": `"resource":{"resource":true}`,
		"/request/requestResource":   `"requestResource":"mine"`,
		"/request/subResource":       `"subResource":{}`,
		"/request/name":              `"name":5`,
		"/request/namespace":         `"namespace":false`,
		"/request/operation":         `"operation":1e999`,
		"/request/dryRun":            `"dryRun":"x"`,
	} {
		w := posted(h, strings.Replace(goodReview, `"uid":"5e1f"`, `"uid":"5e1f",`+field, 1))
		assert.Equal(t, http.StatusBadRequest, w.Code, "We should refuse %s.", field)
		assert.Contains(t, w.Body.String(), fmt.Sprintf("within %q", pointer), "We should name the field.")
	}
}

// FuzzDecode compares with util/json, the API server's own decoder.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(goodReview))
	f.Add([]byte(wholeReview))
	for _, request := range []string{
		`"\u0075id":"\u0035\ud83d\ude00\ud800"`, `"uid":"a","uid":"b"`, `"dryRun":true,"dryRun":null`, `"object":null,"oldObject":{}`, `"object": {"a" : 1} `,
		`"kind":{"kind":"A"},"kind":{"group":"b","more":[]}`,
		`"resource":{"version":"v2"},"requestResource":{"version":"v1","resource":"v2"},"requestResource":{"group":"a"}`,
		`"requestResource":{"version":"v1"},"requestResource":null`, `"object":{},"object":[1e999]`, `"Name":"a","name":null`, `"userInfo":{"extra":{"a":["b"]}}`,
	} {
		f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"5e1f",` + request + `}}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/bind", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		got, err := decode(httptest.NewRecorder(), r, &reservation{ctx: t.Context()})
		if err != nil {
			return // We refuse more, such as invalid UTF-8.
		}
		want := &admissionv1.AdmissionReview{}
		if json.Unmarshal(body, want) != nil {
			require.NoError(t, json.Unmarshal(body, &map[string]runtime.RawExtension{}), "We should not read what is no JSON.")
			return // The error is in a part that we do not read.
		}
		q := want.Request
		assert.Equal(t, &admissionv1.AdmissionRequest{
			UID: q.UID, Kind: q.Kind, Resource: q.Resource, RequestResource: q.RequestResource, SubResource: q.SubResource, Name: q.Name, Namespace: q.Namespace,
			Operation: q.Operation, DryRun: q.DryRun, Object: q.Object, OldObject: q.OldObject,
		}, got)
	})
}
