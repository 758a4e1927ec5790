package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/selectortest"
	"github.com/classbind/classbind/webhook/leasetest"
)

const goodReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"5e1f"}}`

func admit(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return &admissionv1.AdmissionResponse{Allowed: true}, nil
}

func TestReviewerRefusesWhatIsNoReview(t *testing.T) {
	h := &Handler{Review: admit}
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
			want:   want{http.StatusBadRequest, "cannot decode the request as JSON: "},
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
		"WrongType": {
			reason: "We should name the field whose type is wrong.",
			body:   strings.Replace(goodReview, `"5e1f"`, `"5e1f","resource":{"group":1}`, 1),
			want:   want{http.StatusBadRequest, `within "/request/resource/group"`},
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
				`"status":{"metadata":{},"status":"Failure","message":"dbs \"db\" is forbidden: no ` +
				`class","reason":"Forbidden","details":{"name":"db","kind":"dbs"},"code":403},` +
				`"auditAnnotations":{"reason":"NoMatchingClass"}}}`},
		},
		"FaultOfOurs": {
			reason: "We should answer 503 where we cannot decide, so that the failurePolicy does.",
			review: func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				return nil, errors.New("cannot list the classes of \"golds\": context deadline exceeded")
			},
			want: want{
				http.StatusServiceUnavailable, "application/json",
				`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"classbind cannot answer: cannot list the classes of ` +
					`\"golds\": context deadline exceeded","reason":"ServiceUnavailable","code":503}`,
			},
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
			w := posted(&Handler{Review: tc.review}, goodReview, func(r *http.Request) {
				r.Header.Set("Content-Type", cmp.Or(tc.media, json))
			})
			assert.Equal(t, tc.want, want{w.Code, w.Header().Get("Content-Type"), w.Body.String()}, tc.reason)
		})
	}
}

// FuzzDecode compares with util/json, the API server's own decoder.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(goodReview))
	f.Add([]byte(wholeReview))
	for _, request := range []string{
		`"\u006eame":"\u0035\ud83d\ude00\ud800"`, `"uid":"a","uid":"b"`, `"dryRun":null,"object":null,"oldObject":{}`, `"object": {"a" : 1} `,
		`"kind":{"group":"b","more":[]},"requestResource":{"version":"v1","resource":"v2"},"resource":null`, `"object":[1e999]`,
		`"Name":"a","name":null`, `"userInfo":{"extra":{"a":["b"]}}`,
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
		if !jsontext.Value(body).IsValid() {
			return // It has a name twice; either may count.
		}
		want := &admissionv1.AdmissionReview{}
		if kjson.Unmarshal(body, want) != nil {
			require.NoError(t, kjson.Unmarshal(body, &map[string]json.RawMessage{}), "We should not read what is no JSON.")
			return // The error is in a part that we do not read.
		}
		q := want.Request
		assert.Equal(t, &admissionv1.AdmissionRequest{
			UID: q.UID, Kind: q.Kind, Resource: q.Resource, RequestResource: q.RequestResource, SubResource: q.SubResource, Name: q.Name, Namespace: q.Namespace,
			Operation: q.Operation, DryRun: q.DryRun, Object: q.Object, OldObject: q.OldObject,
		}, got)
	})
}

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

func padded(length int) string { return goodReview + strings.Repeat(" ", length-len(goodReview)) }

func posted(h http.Handler, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/bind", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// asBody is a request as the API server posts it.
func asBody(t *testing.T, request *admissionv1.AdmissionRequest) string {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "AdmissionReview"}, Request: request})
	require.NoError(t, err)
	return string(body)
}

func TestBodiesInFlight(t *testing.T) {
	const limit = 1 << 20
	for name, tc := range map[string]struct {
		reason string
		length int
		http   int           // its major version
		frees  time.Duration // after which the review before is answered
		want   int
		after  time.Duration
	}{
		"Small": {reason: "We should answer a usual review at once.", length: v1beta1.FreeReviewBytes - 600, http: 1, frees: time.Hour, want: http.StatusOK},
		"Small2": {
			reason: "We should answer a usual review of HTTP/2 at once.",
			length: v1beta1.FreeReviewBytes/v1beta1.MaxStreams - 600,
			http:   2,
			frees:  time.Hour,
			want:   http.StatusOK,
		},
		"Little": {reason: "We should count what is beyond that.", length: 100 << 10, http: 1, frees: time.Hour, want: http.StatusOK},
		"Little2": {
			reason: "We should count more of HTTP/2, which may have several on a connection.",
			length: 100 << 10,
			http:   2,
			frees:  time.Hour,
			want:   http.StatusServiceUnavailable,
			after:  deadline,
		},
		"Waits": {
			reason: "We should answer a large review when there is memory.",
			length: limit,
			http:   1,
			frees:  time.Second,
			want:   http.StatusOK,
			after:  time.Second,
		},
		"TooFew": {
			reason: "We should say by the deadline that we cannot answer.",
			length: limit,
			http:   1,
			frees:  time.Hour,
			want:   http.StatusServiceUnavailable,
			after:  deadline,
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			first := true
			h := &Handler{BodyBudget: semaphore.NewWeighted(limit)}
			h.Review = func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				if first {
					first = false
					time.Sleep(tc.frees)
				}
				return admit(ctx, r)
			}
			go posted(h, padded(limit))
			synctest.Wait()
			begin := time.Now()
			w := posted(h, padded(tc.length), func(r *http.Request) { r.ProtoMajor = tc.http })
			assert.Equal(t, tc.want, w.Code, "%s: %s", tc.reason, w.Body)
			assert.Equal(t, tc.after, time.Since(begin), tc.reason)
			time.Sleep(tc.frees) // All is given back.
			synctest.Wait()
			assert.True(t, h.BodyBudget.TryAcquire(limit), "We should give back what a review held.")
		})
	}
}

// Announced bytes that do not arrive are not counted.
func TestBodiesCountWhatComes(t *testing.T) {
	h := reservation{ctx: t.Context(), budget: semaphore.NewWeighted(1 << 20)}
	r := httptest.NewRequest(http.MethodPost, "/bind", io.MultiReader(strings.NewReader(padded(100<<10)), errs{}))
	r.ContentLength = 20 << 20
	_, err := readBody(r, &h)
	require.ErrorContains(t, err, "gone")
	assert.LessOrEqual(t, h.bytes, int64(200<<10), "We should hold no more than twice of what came.")
}

type errs struct{}

func (errs) Read([]byte) (int, error) { return 0, errors.New("gone") }

// The largest object that the API server takes fits.
func TestLargestReview(t *testing.T) {
	h := &Handler{Review: admit, BodyBudget: semaphore.NewWeighted(v1beta1.MaxReviewBytesInFlight)}
	body := strings.Replace(goodReview, `"uid"`, `"object":{"a":"`+strings.Repeat(`\u003c`, 3<<20)+`"},"uid"`, 1)
	for name, announced := range map[string]int64{"Announced": int64(len(body)), "NotAnnounced": -1} {
		w := posted(h, body, func(r *http.Request) { r.ContentLength = announced })
		assert.Equal(t, http.StatusOK, w.Code, "%s: %s", name, w.Body)
	}
	w := posted(h, "", func(r *http.Request) { r.ContentLength = v1beta1.MaxReviewBytes + 1 })
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code, "We should not begin to read what is too large.")
}

func TestReviewersTextsAreLimited(t *testing.T) {
	h := &Handler{Review: admit}
	for field, longest := range map[string]int{
		`"uid":%s`:         v1beta1.MaxNameBytes,
		`"name":%s`:        v1beta1.MaxNameBytes,
		`"namespace":%s`:   validation.DNS1123LabelMaxLength,
		`"operation":%s`:   v1beta1.MaxNameBytes,
		`"subResource":%s`: v1beta1.MaxNameBytes, `"kind":{"kind":%s}`: v1beta1.MaxNameBytes, `"resource":{"group":%s}`: v1beta1.MaxNameBytes,
	} {
		for n, want := range map[int]int{longest: http.StatusOK, longest + 1: http.StatusBadRequest, 1 << 20: http.StatusBadRequest} {
			for _, letter := range []string{"a", `\u0061`} {
				text := fmt.Sprintf(field, `"`+strings.Repeat(letter, n)+`"`)
				w := posted(h, strings.Replace(goodReview, `}}`, `,`+text+`}}`, 1))
				assert.Equal(t, want, w.Code, "We should read %s of %d bytes, or not.", field, n)
				if want != http.StatusOK {
					assert.Less(t, w.Body.Len(), v1beta1.MaxMessageBytes, "We should be brief.")
				}
			}
		}
	}
}

// TestNamesOfReviews has what API servers send, and what they never do. TestReviewsAreNotBelieved has more of the latter.
func TestNamesOfReviews(t *testing.T) {
	for text, want := range map[string]int{
		`"name":"system:node-proxier"`: 200, `"name":"a,b"`: 200, `"name":""`: 200, `"namespace":""`: 200, `"namespace":"kube-system"`: 200,
		`"operation":"CREATE","name":"a/b"`: 200, `"operation":"CONNECT"`: 200, `"subResource":"status"`: 200,
		`"kind":{"group":"","version":"v1","kind":"Pod"}`: 200, `"resource":{"group":"a.b-c.io","version":"v1alpha1","resource":"sql_instances"}`: 200,
		`"operation":"UPDATE","name":"a/b"`: 400, `"name":".."`: 400, `"name":"%2f"`: 400, `"namespace":"a,b"`: 400, `"namespace":"-"`: 400, `"namespace":"A"`: 400,
		`"namespace":"a."`: 400, `"subResource":"a/b"`: 400, `"operation":"\n"`: 400, `"uid":"é"`: 400, `"kind":{"kind":"a b"}`: 400,
		`"resource":{"group":".."}`: 400, `"requestResource":{"version":"a,b"}`: 400,
	} {
		w := posted(&Handler{Review: admit}, strings.Replace(goodReview, `}}`, `,`+text+`}}`, 1))
		assert.Equal(t, want, w.Code, "We should answer %s as is right: %s", text, w.Body)
	}
}

// hostileObjects are the most expensive objects that a review may have.
func hostileObjects() map[string]string {
	list := func(s string, n int) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	return map[string]string{
		"EmptyExpressions": `{"spec":{"classSelector":{"matchExpressions":[` + list("{}", 4000) + `]}}}`,
		"LongValue":        `{"spec":{"classSelector":{"matchLabels":{"a":"` + strings.Repeat("a", 2_900_000) + `"}}}}`,
		"Absences":         `{"metadata":{"annotations":{"classbind.io/class-selector":"` + list("!a", 87_000) + `"}}}`,
		"WrongValues":      `{"spec":{"classSelector":{"matchExpressions":[{"key":"a","operator":"In","values":[` + list(`"-"`, 1024) + `]}]}}}`,
		"Reference":        `{"spec":{"classRef":[` + list("{}", 1_000_000) + `]}}`,
		"Fields":           `{"spec":{"classSelector":{}},` + list(`"a":[]`, 400_000) + `}`,
	}
}

func asReview(object string) string { return strings.Replace(wholeReview, wholeObject(), object, 1) }

func asUpdate(before, object string) string {
	return strings.NewReplacer(`"operation":"CREATE"`, `"operation":"UPDATE"`, `"oldObject":null`, `"oldObject":`+before).Replace(asReview(object))
}

func wholeObject() string {
	begin := strings.Index(wholeReview, `"object":{`) + len(`"object":`)
	return wholeReview[begin:strings.Index(wholeReview, `,"oldObject"`)]
}

func TestReviewsCostLittle(t *testing.T) {
	h := newHandler(io.Discard)
	for name, object := range hostileObjects() {
		for of, body := range map[string]string{"": asReview(object), "Updated": asUpdate(boundToGold, object), "Old": asUpdate(object, "{}")} {
			t.Run(name+of, func(t *testing.T) {
				var w *httptest.ResponseRecorder
				least := ^uint64(0)
				for range 3 {
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					w = posted(h, body)
					runtime.ReadMemStats(&after)
					least = min(least, after.TotalAlloc-before.TotalAlloc)
				}
				assert.LessOrEqual(t, least, uint64(8*len(body)+1<<20), "We should allocate little.")
				assert.Equal(t, http.StatusOK, w.Code, "We should answer: %s", w.Body)
				assert.Less(t, w.Body.Len(), 16<<10, "We should be brief.")
			})
		}
	}
}

// Of a class, only what is needed is read.
func TestClassesCostLittle(t *testing.T) {
	for name, rest := range map[string]string{
		"Labels":      `"labels":{` + strings.TrimSuffix(strings.Repeat(`"a":"b",`, 300_000), ",") + `}`,
		"Annotations": `"annotations":{"default":"true","a":"` + strings.Repeat("a", 2_900_000) + `"}`,
		"Weight":      `"annotations":{"weight":"` + strings.Repeat("1", 2_900_000) + `"}`,
	} {
		raw := []byte(`{"metadata":{"name":"gold","uid":"5e1f",` + rest + `},"spec":[` + strings.TrimSuffix(strings.Repeat("{},", 100_000), ",") + `]}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, class, err := decodeClass(sqlClasses, "object", raw)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		assert.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "We should allocate little for %s.", name)
		assert.Equal(t, name == "Annotations", class.Default)
		assert.Equal(t, name == "Weight", class.WeightErr != nil)
		if class.WeightErr != nil {
			assert.Less(t, len(class.WeightErr.Error()), v1beta1.MaxMessageBytes, "We should be brief.")
		}
	}
}

// journal is a ResponseWriter and the sink of a log. It notes what comes when.
type journal struct {
	answers
	counted func() map[string]float64
	panics  bool
	steps   []string
}

func (j *journal) Write(p []byte) (int, error) {
	j.step("answer")
	if j.panics {
		panic(http.ErrAbortHandler)
	}
	return j.answers.Write(p)
}

func (j *journal) FlushError() error {
	j.step("flush")
	return nil
}

// step notes whether the claim has been counted before.
func (j *journal) step(what string) {
	j.steps = append(j.steps, fmt.Sprint(what, " ", len(j.counted()) > 0))
}

// sink of the log.
type sink func()

func (s sink) Write(p []byte) (int, error) {
	s()
	return len(p), nil
}

func TestAnswersFirst(t *testing.T) {
	refused := func(string) error { return errors.New("refused") }
	for name, tc := range map[string]struct {
		reason  string
		class   string
		panics  bool
		review  string
		want    []string
		counted string
	}{
		"Bound": {
			reason:  "We should send the answer, then log and then count the decision.",
			class:   "gold tier=gold region=us-east-1",
			want:    []string{"answer false", "flush false", "log false"},
			counted: "bound",
		},
		"Failed": {
			reason:  "We should answer first where we cannot decide, too.",
			class:   "silver tier=silver",
			want:    []string{"answer false", "flush false", "log false"},
			counted: "unavailable",
		},
		"Restored": {
			reason: "We should answer an update first, too.", class: "silver tier=silver",
			review: strings.NewReplacer(`"CREATE"`, `"UPDATE"`, `"oldObject":null`, `"oldObject":`+boundToGold).Replace(wholeReview),
			want:   []string{"answer false", "flush false", "log false"}, counted: "restored",
		},
		"Panic": {
			reason:  "We should log and count a decision whose answer could not be sent.",
			class:   "gold tier=gold region=us-east-1",
			panics:  true,
			want:    []string{"answer false", "log false"},
			counted: "bound",
		},
		"DryRun": {
			reason: "We should log a dry run, and not count it.",
			class:  "gold tier=gold region=us-east-1",
			review: strings.Replace(wholeReview, `"dryRun":false`, `"dryRun":true`, 1),
			want:   []string{"answer false", "flush false", "log false"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := newInventory(newClaimKind(), index(sqlClasses, tc.class))
			binder := newBinder(t, inventory)
			binder.Decider.Broken, binder.Metrics = refused, NewMetrics(inventory.Snapshot)
			j := &journal{answers: answers{header: http.Header{}}, panics: tc.panics}
			j.counted = func() map[string]float64 { return counted(t, binder.Metrics) }
			review := wholeReview
			if tc.review != "" {
				review = tc.review
			}
			r := httptest.NewRequest(http.MethodPost, "/bind", strings.NewReader(review))
			r.Header.Set("Content-Type", "application/json")
			serve := func() { (&Handler{Review: named(binder), Log: newLog(sink(func() { j.step("log") }))}).ServeHTTP(j, r) }
			if tc.panics {
				assert.PanicsWithError(t, http.ErrAbortHandler.Error(), serve, tc.reason)
			} else {
				serve()
			}
			assert.Equal(t, tc.want, j.steps, tc.reason)
			all := counted(t, binder.Metrics)
			for _, outcome := range outcomes {
				want := 0.0
				if outcome == tc.counted {
					want = 1
				}
				assert.InDelta(t, want, all[fmt.Sprintf(decided, outcome)], 0, tc.reason)
			}
		})
	}
}

// TestNobodyWaitsForTheLog of a replica that has to end while its log is stuck.
func TestNobodyWaitsForTheLog(t *testing.T) {
	stuck, unstuck, log := make(chan struct{}), make(chan struct{}), bytes.Buffer{}
	h := newHandler(io.MultiWriter(sink(func() { close(stuck); <-unstuck }), &log))
	whole := NewServer(ServerOptions{})
	whole.Register("/", h) // It wraps the ResponseWriter.
	server := httptest.NewTLSServer(whole.mux)
	defer server.Close()
	response, err := server.Client().Post(server.URL, "application/json", strings.NewReader(wholeReview))
	require.NoError(t, err, "We should answer while the log is stuck.")
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Contains(t, string(answer), `"patch"`, "We should send the whole answer while the log is stuck.")
	assert.Equal(t, "HTTP/1.1", response.Proto, "This is the protocol of an API server that speaks to a Service.")
	<-stuck // The line comes after the answer.

	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, server.Config.Shutdown(soon), context.DeadlineExceeded, "We should not end before the decision is logged.")
	close(unstuck)
	require.NoError(t, server.Config.Shutdown(t.Context()))
	assert.Equal(t, 1, strings.Count(log.String(), "Reviewed a claim"), "We should log each decision once.")
}

// unanswered is a call to an API server that does not answer.
func unanswered(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Hour):
		return errors.New("nobody answered for an hour")
	}
}

// A request is answered by its deadline, whatever the answer waits for, even if the body took part of the time.
func TestReviewsEndInTime(t *testing.T) {
	require.Less(t, deadline, v1beta1.WebhookTimeoutSeconds*time.Second, "We should give up before the API server does.")
	gates := []selector.Test{{Drops: func(ctx context.Context, _ selector.Subject, _ *inventory.Class) (bool, error) {
		return false, unanswered(ctx)
	}}}
	claimKind := func(ctx context.Context, _ string) (*v1beta1.ClaimKind, error) { return nil, unanswered(ctx) }
	// after says, after this time, that a claim kind is registered.
	after := func(d time.Duration) func(context.Context, string) (*v1beta1.ClaimKind, error) {
		return func(_ context.Context, name string) (*v1beta1.ClaimKind, error) {
			time.Sleep(d)
			return claimKindOf(name), nil
		}
	}
	review, class := newRequest(wantsGold), newGuardRequest(rdsClasses, "", object("gold", markedInAWS, ""))
	binders := map[string]func(*Binder, *selector.Inventory){
		"Related": func(b *Binder, i *selector.Inventory) {
			k := newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Claims.When = "namespaceObject.metadata.labels.tenant == 'a'" })
			i.SetRelated(inventory.NewObjects(k.RelatedKinds()[0], false, nil))
			i.SetClaimKind(k)
			b.Decider.Related = func(ctx context.Context, _ string, _ *rules.Kind, _, _ string) (*expression.Object, error) {
				return nil, unanswered(ctx)
			}
		},
		"RelatedList": func(b *Binder, i *selector.Inventory) {
			k := newClaimKind(selectortest.Spec(`{claims: {when: "related.quotas.all(q, q.spec.open)"},
				classes: {related: [{name: quotas, resource: quotas.example.org, selector: {}}]}}`))
			i.SetRelated(inventory.NewObjects(k.RelatedKinds()[0], true, nil))
			i.SetClaimKind(k)
			b.Decider.RelatedList = func(ctx context.Context, _ *rules.Kind, _ string) (*inventory.Objects, error) {
				return nil, unanswered(ctx)
			}
		},
		"Costly": func(b *Binder, i *selector.Inventory) {
			setCostly(i)
			b.Decider.Costly = func(ctx context.Context, _ string) (func(), error) { return nil, unanswered(ctx) }
		},
		"Class": func(b *Binder, _ *selector.Inventory) {
			b.Decider.Class = func(ctx context.Context, _ string, _ *inventory.ClassKind, _, _ string) (*inventory.Class, error) {
				return nil, unanswered(ctx)
			}
		},
		"Choose": func(b *Binder, i *selector.Inventory) {
			i.SetClasses(index(sqlClasses, "gold tier=gold"))
			i.SetClaimKind(newClaimKind(func(s *v1beta1.ClaimKindSpec) {
				s.Choice.Strategy = v1beta1.ExternalStrategy
				s.Choice.External = &v1beta1.External{Host: "chooser.example.org:443", WhenUnavailable: v1beta1.UnavailableFail}
			}))
			b.Decider.Choose = func(ctx context.Context, _ *selector.Question) selector.Answer {
				_ = unanswered(ctx)
				return selector.Answer{Outcome: selector.ChooserUnavailable, Unavailable: v1beta1.ReasonTimeout}
			}
		},
		"Drops": func(b *Binder, i *selector.Inventory) {
			i.SetClasses(index(sqlClasses, "gold tier=gold"))
			b.Decider.Gates = gates
		},
		"ClaimKind": func(b *Binder, i *selector.Inventory) {
			i.DeleteClaimKind(claimKindName)
			b.ClaimKind = claimKind
		},
		"await": func(b *Binder, i *selector.Inventory) {
			i.DeleteClaimKind(claimKindName)
			b.ClaimKind = after(time.Second)
		},
		"await, wait, and then Drops": func(b *Binder, i *selector.Inventory) {
			i.DeleteClaimKind(claimKindName)
			b.ClaimKind, b.Decider.Waits, b.Decider.Gates = after(time.Second/2), i.Waits, gates
			time.AfterFunc(2*time.Second+v1beta1.MaxClassWait/2, func() { i.SetClasses(index(sqlClasses, "gold tier=gold")) })
			time.AfterFunc(2*time.Second, func() { i.SetClaimKind(newClaimKind()) })
		},
	}
	guards := map[string]func(*Guard, *selector.Inventory){
		"ClassKind": func(g *Guard, _ *selector.Inventory) {
			g.ClassKind = func(ctx context.Context, _ string) (*inventory.ClassKind, error) { return nil, unanswered(ctx) }
		},
		"ClaimKind": func(g *Guard, i *selector.Inventory) { i.DeleteClaimKind(claimKindName); g.ClaimKind = claimKind },
		"Class": func(g *Guard, i *selector.Inventory) {
			i.SetClasses(index(rdsClasses, "gold"))
			g.Class = func(ctx context.Context, _ *inventory.ClassKind, _, _ string) (metav1.Object, *inventory.Class, error) {
				return nil, nil, unanswered(ctx)
			}
		},
		"Namespace": func(g *Guard, _ *selector.Inventory) {
			g.Namespace = func(ctx context.Context, _ string) (bool, error) { return false, unanswered(ctx) }
		},
		"Leases": func(g *Guard, _ *selector.Inventory) {
			g.Leases.(*leasetest.Leases).Before = (&slowLeases{takes: time.Hour}).before
		},
	}
	check := func(t *testing.T, review Reviewer, request *admissionv1.AdmissionRequest) {
		t.Helper()
		begin := time.Now()
		w := posted(&Handler{Review: review}, "", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(io.MultiReader(slow(time.Second), strings.NewReader(asBody(t, request)))), -1
		})
		assert.Equal(t, deadline, time.Since(begin))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, "We should say that we cannot answer: %s", w.Body)
	}
	for name, hang := range binders {
		inBubble(t, "Binder."+name, func(t *testing.T) {
			inventory := newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Reference.Explicit = v1beta1.CheckExplicit }), index(sqlClasses))
			binder := newBinder(t, inventory)
			hang(binder, inventory)
			if name != "Class" {
				check(t, byResource(binder), review)
				return
			}
			check(t, func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				arrivalOf(ctx).registration = claimKindName
				return binder.Check(ctx, r)
			}, newRequest(`{"spec":{"classRef":{"apiVersion":"example.org/v1","kind":"SQLClass","name":"new"}}}`))
		})
	}
	for name, hang := range guards {
		inBubble(t, "Guard."+name, func(t *testing.T) {
			inventory := newInventory(newClaimKind(), index(rdsClasses))
			guard := newAPIServer().guard(inventory)
			hang(guard, inventory)
			check(t, guard.Review, class)
		})
	}
	waits := append(asking(reflect.TypeFor[Binder]()), asking(reflect.TypeFor[selector.Decider]())...)
	assert.Subset(t, binders, append(waits, asking(reflect.TypeFor[selector.Test]())...), "We should know of all that a claim may wait for.")
	assert.Subset(t, guards, asking(reflect.TypeFor[Guard]()), "We should know of all that a class may wait for.")
}

// slow is a body that takes this time and is empty.
type slow time.Duration

func (s slow) Read([]byte) (int, error) {
	time.Sleep(time.Duration(s))
	return 0, io.EOF
}

// asking returns the fields that are functions with a context.
func asking(of reflect.Type) (names []string) {
	for _, field := range reflect.VisibleFields(of) {
		// Deadline asks no one.
		if f := field.Type; f.Kind() == reflect.Func && f.NumIn() > 0 && f.In(0) == reflect.TypeFor[context.Context]() && field.Name != "Deadline" {
			names = append(names, field.Name)
		}
	}
	return names
}

// setCostly makes it costly to decide on claims of gold.
func setCostly(i *selector.Inventory) {
	costly := func(s *v1beta1.ClaimKindSpec) {
		const letters = "'abcdefghijklmnopqrstuvw'.split('')"
		s.Classes.Fits = []v1beta1.Fit{{Name: "Costly", Expression: letters + ".all(a, " + letters + ".all(b, claim.metadata.name + a + b != class.metadata.name))"}}
	}
	i.SetClaimKind(newClaimKind(costly))
	i.SetClasses(
		index(newClassKindFor(newRegistration(costly)), "a tier=gold", "b tier=gold", "c tier=gold", "d tier=gold", "e tier=gold", "f tier=gold", "g tier=gold"),
	)
}

// slowLeases count concurrent reads, each of which takes some time.
type slowLeases struct {
	takes time.Duration

	mu         sync.Mutex // guards all below
	busy, most int
}

func (s *slowLeases) before(ctx context.Context, verb string, _ *coordinationv1.Lease) error {
	if verb != "get" {
		return nil
	}
	s.count(1)
	defer s.count(-1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (s *slowLeases) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += n
	s.most = max(s.most, s.busy)
}

// manyForged reviews are as many as may wait for one namespace, but one.
var manyForged = v1beta1.GuardReviews.WaitingPerKey - 1

// forged creations of default classes, each with a name of its own.
func forged(kind *inventory.ClassKind, metadata, rest string) []*admissionv1.AdmissionRequest {
	requests := make([]*admissionv1.AdmissionRequest, manyForged)
	for i := range requests {
		requests[i] = newGuardRequest(kind, "", object(fmt.Sprintf("forged-%d", i), metadata, rest))
	}
	return requests
}

// TestGuardReviewsTakeTurns floods the guard with forged reviews while the seat is held, so that each would wait for the holder.
func TestGuardReviewsTakeTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		flood  [][]*admissionv1.AdmissionRequest
		most   int // reads of Leases at once: that of a PathClass has two
	}{
		"OtherKind": {
			reason: "We should read for half as many reviews of one kind, and for the one of another.",
			flood:  [][]*admissionv1.AdmissionRequest{forged(sqlClasses, marked, "")},
			most:   v1beta1.GuardReviews.PerKey + 2,
		},
		"TwoOtherKinds": {
			reason: "We should read for so many reviews at once, and no more.",
			flood:  [][]*admissionv1.AdmissionRequest{forged(sqlClasses, marked, ""), forged(rdsClasses, markedInAWS, "")},
			most:   v1beta1.GuardReviews.InFlight + 1,
		},
		"SameKind": {
			reason: "We should have no review wait for those that wait for a seat.",
			flood:  [][]*admissionv1.AdmissionRequest{forged(pathClasses, "", `,"spec":{"isDefault":true}`)},
			most:   2 * v1beta1.GuardReviews.PerKey,
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newAPIServer()
			s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "")
			guard, leases := s.guard(newInventory(newClaimKind())), &slowLeases{takes: 5 * time.Millisecond}
			s.Before = leases.before
			var flood sync.WaitGroup
			for _, request := range slices.Concat(tc.flood...) {
				flood.Go(func() {
					_, err := guard.Review(t.Context(), request)
					assert.NoError(t, err, "We should get to each in its turn.")
				})
			}
			synctest.Wait()
			begin := time.Now()
			response, err := guard.Review(t.Context(), newGuardRequest(pathClasses, "", pathMarked))
			took := time.Since(begin)
			flood.Wait()
			require.NoError(t, err, tc.reason)
			assert.Equal(t, "DefaultInFlight", response.AuditAnnotations["reason"], tc.reason)
			assert.Less(t, took, time.Second, tc.reason)
			assert.Equal(t, tc.most, leases.most, tc.reason)
		})
	}
}

// TestGuardReviewsBeyondThoseThatWait are refused at once, so that waiting reviews do not take all connections.
func TestGuardReviewsBeyondThoseThatWait(t *testing.T) {
	for name, tc := range map[string]struct {
		reason           string
		namespaces, each int
		wait             int
	}{
		"OneNamespace":   {"We should have no more wait of one namespace.", 1, 1000, v1beta1.GuardReviews.WaitingPerKey},
		"TwoNamespaces":  {"We should have as many wait of each.", 2, 500, 2 * v1beta1.GuardReviews.WaitingPerKey},
		"ManyNamespaces": {"We should have no more wait of all namespaces.", 1000, 1, v1beta1.GuardReviews.Waiting},
		"Few":            {"We should have them wait where they are few.", 20, 2, 40},
	} {
		inBubble(t, name, func(t *testing.T) {
			limiter := fair.NewLimiter(v1beta1.GuardReviews)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			begin := time.Now()
			var flood sync.WaitGroup
			var refused atomic.Int64
			for i := range tc.namespaces * tc.each {
				flood.Go(func() {
					done, err := limiter.Take(ctx, fmt.Sprint(i%tc.namespaces))
					if err == nil {
						<-ctx.Done()
						done()
					} else if !errors.Is(err, context.DeadlineExceeded) && assert.Zero(t, time.Since(begin)) {
						refused.Add(1)
					}
				})
			}
			flood.Wait()
			assert.EqualValues(t, tc.namespaces*tc.each-tc.wait, refused.Load(), tc.reason)
			done, err := limiter.Take(ctx, "")
			require.NoError(t, err, "We should forget those who are gone.")
			done()
		})
	}
}

// TestCostlyDecisions of a namespace that has more than its share: to answer that we cannot would let its claims pass without a class under
// Ignore.
func TestCostlyDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inventory := newInventory(newClaimKind(), index(sqlClasses))
		setCostly(inventory)
		b := newBinder(t, inventory)
		b.Metrics = NewMetrics(inventory.Snapshot)
		b.Decider.Costly = CostlyDecisions(true)
		request := newRequest(wantsGold)
		done, err := b.Decider.Costly(t.Context(), request.Namespace)
		require.NoError(t, err)
		response := mustReview(t, byResource(b), request)
		assert.False(t, response.Allowed)
		assert.EqualValues(t, http.StatusTooManyRequests, response.Result.Code)
		assert.EqualValues(t, 1, response.Result.Details.RetryAfterSeconds, "We should have clients try again.")
		assert.Contains(t, response.Result.Message, "too many claims of this namespace")
		assert.Contains(t, counted(t, b.Metrics), fmt.Sprintf(decided, "throttled"))
		request.Namespace = "other"
		response = mustReview(t, byResource(b), request)
		assert.True(t, response.Allowed, "We should decide on the claims of others.")
		done()
		time.Sleep(time.Second)
		request.Namespace = newRequest(wantsGold).Namespace
		response = mustReview(t, byResource(b), request)
		assert.True(t, response.Allowed)
	})
}

// TestCostlyDefaultKeepsNoTurn has claims without a selector, and one default class whose costly fit does not hold: the text of each answer
// once never gave its place back.
func TestCostlyDefaultKeepsNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		costly := func(s *v1beta1.ClaimKindSpec) {
			const letters = "'abcdefghijklmnopqrstuvwabcdefghijklmnopqrstuvw'.split('')"
			s.Classes.Fits = []v1beta1.Fit{
				{Name: "Costly", Expression: "!" + letters + ".all(a, " + letters + ".all(b, a != class.metadata.name && b != claim.metadata.name))"},
			}
		}
		kind := inventory.NewClassKind(&v1beta1.ClassKind{
			ObjectMeta: metav1.ObjectMeta{Name: "sqlclasses.example.org"}, Spec: v1beta1.ClassKindSpec{Default: v1beta1.Source{Annotation: "default"}},
		}, sqlClasses.GroupVersionKind, false, newRegistration(costly))
		inventory := newInventory(newClaimKind(costly), index(kind, "a-class @default=true"))
		b := newBinder(t, inventory)
		b.Decider.Costly = CostlyDecisions(true)
		dryRun := true
		for i, namespace := range []string{"mallory-1", "mallory-2", "mallory-3", "mallory-4"} {
			request := newRequest(`{}`)
			request.Namespace, request.DryRun = namespace, &dryRun
			if i%2 == 0 {
				request.DryRun = nil
			}
			response := mustReview(t, byResource(b), request)
			require.Len(t, response.Warnings, 1)
			assert.Contains(t, response.Warnings[0], "that is marked default can serve it")
		}
		begin := time.Now()
		for i := range v1beta1.CostlyDecisions.InFlight {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			done, err := b.Decider.Costly(ctx, fmt.Sprint("honest-", i))
			require.NoError(t, err, "We should keep no turn.")
			defer done()
			cancel()
		}
		assert.Zero(t, time.Since(begin), "We should keep nobody waiting.")
	})
}
