package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/truncate"
)

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
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: reviewType, Request: request})
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
		"Small":   {reason: "We should answer a usual review at once.", length: v1beta1.FreeReviewBytes - 600, http: 1, frees: time.Hour, want: http.StatusOK},
		"Small2":  {reason: "We should answer a usual review of HTTP/2 at once.", length: v1beta1.FreeReviewBytes/v1beta1.MaxStreams - 600, http: 2, frees: time.Hour, want: http.StatusOK},
		"Little":  {reason: "We should count what is beyond that.", length: 100 << 10, http: 1, frees: time.Hour, want: http.StatusOK},
		"Little2": {reason: "We should count more of HTTP/2, which may have several on a connection.", length: 100 << 10, http: 2, frees: time.Hour, want: http.StatusServiceUnavailable, after: deadline},
		"Waits":   {reason: "We should answer a large review when there is memory.", length: limit, http: 1, frees: time.Second, want: http.StatusOK, after: time.Second},
		"TooFew":  {reason: "We should say by the deadline that we cannot answer.", length: limit, http: 1, frees: time.Hour, want: http.StatusServiceUnavailable, after: deadline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				h := &Handler{BodyBudget: semaphore.NewWeighted(limit)}
				h.Review = func(ctx context.Context, _ string, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, func(), error) {
					if first {
						first = false
						time.Sleep(tc.frees)
					}
					return Reviewer(admit).Unnamed()(ctx, "", r)
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
	h := &Handler{Review: Reviewer(admit).Unnamed(), BodyBudget: semaphore.NewWeighted(v1beta1.MaxReviewBytesInFlight)}
	body := strings.Replace(goodReview, `"uid"`, `"object":{"a":"`+strings.Repeat(`\u003c`, 3<<20)+`"},"uid"`, 1)
	for name, announced := range map[string]int64{"Announced": int64(len(body)), "NotAnnounced": -1} {
		w := posted(h, body, func(r *http.Request) { r.ContentLength = announced })
		assert.Equal(t, http.StatusOK, w.Code, "%s: %s", name, w.Body)
	}
	w := posted(h, "", func(r *http.Request) { r.ContentLength = v1beta1.MaxReviewBytes + 1 })
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code, "We should not begin to read what is too large.")
}

func TestReviewersTextsAreLimited(t *testing.T) {
	h := &Handler{Review: Reviewer(admit).Unnamed()}
	for _, field := range []string{`"uid":%s`, `"name":%s`, `"namespace":%s`, `"operation":%s`, `"subResource":%s`, `"kind":{"kind":%s}`, `"resource":{"group":%s}`} {
		for n, want := range map[int]int{v1beta1.MaxNameBytes: http.StatusOK, v1beta1.MaxNameBytes + 1: http.StatusBadRequest, 1 << 20: http.StatusBadRequest} {
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

func TestFailuresAreTold(t *testing.T) {
	long := &url.Error{Op: "Get", URL: "https://10.0.0.1/apis/a?labelSelector=" + strings.Repeat("a", 4<<20), Err: errors.New("header list larger than peer's limit")}
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   string
	}{
		"URL":  {"We should not repeat a URL.", fmt.Errorf("cannot list: %w", errors.Join(long, long)), "cannot list: header list larger than peer's limit\\nheader list larger than peer's limit"},
		"Long": {"We should be brief.", errors.New(strings.Repeat("é", 1000)), strings.Repeat("é", 254) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, truncate.Error(tc.err).Error(), tc.reason)
			w := posted(&Handler{Review: Reviewer(func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
				return nil, tc.err
			}).Unnamed()}, goodReview)
			assert.Equal(t, http.StatusServiceUnavailable, w.Code, tc.reason)
			assert.Less(t, w.Body.Len(), 2*v1beta1.MaxMessageBytes, tc.reason)
		})
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
