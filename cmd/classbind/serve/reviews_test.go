package serve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	webhookserver "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/access"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/webhook"
)

// askedAPI is an API server that records what it is asked. It has the namespaces and the gold classes that it is asked for, and no Lease.
type askedAPI struct {
	mu    sync.Mutex
	asked []*url.URL
}

// RoundTrip answers a request.
func (a *askedAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.asked = append(a.asked, r.URL)
	a.mu.Unlock()
	code, answer := http.StatusOK, ""
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	header := http.Header{"Content-Type": {"application/json"}}
	switch {
	case strings.HasSuffix(name, "accessreviews"):
		code, answer = http.StatusCreated, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}`
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		body, _ := io.ReadAll(r.Body)                     // It is in memory.
		header["Content-Type"] = r.Header["Content-Type"] // It may be protobuf.
		code, answer = http.StatusCreated, string(body)
	case r.URL.Path == "/apis/example.org":
		answer = asJSON(controllertest.APIGroup("v1"))
	case r.URL.Path == "/apis/example.org/v1":
		all := metav1.Verbs{"get", "list", "watch", "patch"}
		answer = asJSON(controllertest.APIResources(
			metav1.APIResource{Name: "golds", Kind: "Gold", Namespaced: true, Verbs: all},
			metav1.APIResource{Name: "claims", Kind: "Claim", Namespaced: true, Verbs: all}))
	case name == "golds":
		answer = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"7"},"items":[]}`
	case strings.Contains(r.URL.Path, "/golds/") && name != "new" || strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/"):
		answer = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"uid":"u-1","resourceVersion":"7","namespace":"team","name":` +
			asJSON(name) + `}}`
	default:
		code, answer = http.StatusNotFound, asJSON(controllertest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound))
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// take returns what was asked since the last call.
func (a *askedAPI) take() (asked []*url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked, a.asked = a.asked, nil
	return asked
}

// post a review to a webhook.
func post(t *testing.T, mgr *unstarted, path string, review []byte) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(review))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	mgr.registered.mux.ServeHTTP(w, r)
	return w
}

func asJSON(object any) string {
	text, _ := json.Marshal(object) // The objects of this file have strings, numbers, lists and maps.
	return string(text)
}

// unstarted is a manager that only has what the webhooks are put together with.
type unstarted struct {
	ctrl.Manager
	registered registered

	cached  *controllertest.Cached
	live    client.Reader
	metrics *webhook.Metrics
}

// registered are the webhooks of a server that is not started.
type registered struct {
	webhookserver.Server

	mux   *http.ServeMux
	paths []string
}

func (m *unstarted) GetClient() client.Client               { return m.cached }
func (m *unstarted) GetAPIReader() client.Reader            { return m.live }
func (m *unstarted) GetWebhookServer() webhookserver.Server { return &m.registered }

// Register a handler.
func (m *registered) Register(path string, handler http.Handler) {
	m.paths = append(m.paths, path)
	m.mux.Handle(path, handler)
}

// newWebhooks returns the webhooks of the command, which know a gold class and ask the API server for what they do not know.
func newWebhooks(t *testing.T, api http.RoundTripper, log logr.Logger) *unstarted {
	t.Helper()
	claimKind := controllertest.NewClaimKind("claims.example.org")
	claimKind.Spec.Selector.Path = ".spec.classSelector"
	claimKind.Spec.Reference.Explicit = v1beta1.CheckExplicit
	claimKind.Spec.Classes.Use = &v1beta1.Use{Subject: v1beta1.UseByRequester}
	claimKind.Spec.Classes.Namespaces.From = v1beta1.FromSameAsClaim
	classKind := v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"},
		Spec: v1beta1.ClassKindSpec{
			ClaimKinds: controllertest.Links("claims.example.org"), OnDelete: v1beta1.WarnOfDeletion,
			Default: v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"},
		},
	}
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme)))
	config := &rest.Config{Host: "http://api", Transport: api, QPS: -1}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		v1beta1.GroupVersion.WithKind("ClaimKind"), v1beta1.GroupVersion.WithKind("ClassKind"), {Version: "v1", Kind: "Namespace"},
	} {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	live, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	require.NoError(t, err)
	cached := &controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*claimKind}, ClassKinds: []v1beta1.ClassKind{classKind}}
	mgr := &unstarted{cached: cached, live: live, registered: registered{mux: http.NewServeMux()}}
	s := &server{
		options: &options{namespace: "classbind-system", inFlightWindow: time.Minute}, cluster: config, mgr: mgr, log: log,
		drain: newDrain(t.Context(), 0), clients: &clients{}, history: &history{},
	}
	s.registration, err = registry.NewRegistration(config, cached, live)
	require.NoError(t, err)
	authorization, err := authorizationclient.NewForConfig(config)
	require.NoError(t, err)
	reviews := access.NewReviews(authorization.SubjectAccessReviews())
	s.decider = &selector.Decider{
		Gates: []selector.Test{reviews.Gate()}, Waits: s.registration.Inventory.Waits, Class: s.registration.LiveReads.NamedClass,
		Related: s.registration.LiveReads.RelatedObject, Deadline: webhook.Deadline, Fresh: rand.Uint64, Now: time.Now,
	}
	s.claims, err = latebinding.NewClaims(s.registration, cached, config, s.options.namespace)
	require.NoError(t, err)
	s.metrics = webhook.NewMetrics(s.registration.Inventory.Snapshot)
	mgr.metrics = s.metrics
	_, err = s.addWebhooks()
	require.NoError(t, err)

	golds := inventory.NewClassKind(&classKind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, true, claimKind)
	known := golds.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: "known", Labels: map[string]string{"tier": "known"}}, nil)
	s.registration.Inventory.SetClaimKind(selector.NewClaimKind(claimKind, &classKind))
	s.registration.Inventory.SetClasses(inventory.NewClasses(golds, []*inventory.Class{known}))
	s.registration.Inventory.Open()
	return mgr
}

// filled has a string, or something else, in each field of a type.
func filled(of reflect.Type) any {
	switch of.Kind() {
	case reflect.Pointer:
		return filled(of.Elem())
	case reflect.Slice:
		return []any{filled(of.Elem())}
	case reflect.Map:
		return map[string]any{"key": filled(of.Elem())}
	case reflect.String:
		return "a"
	case reflect.Struct:
		if of == reflect.TypeFor[metav1.Time]() {
			return "2026-01-01T00:00:00Z"
		}
		all := map[string]any{}
		for _, f := range reflect.VisibleFields(of) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && len(f.Index) == 1 {
				all[name] = filled(f.Type)
			}
		}
		return all
	default:
		return true
	}
}

// leaves are the strings of a document, each by the keys and indices that lead to it. An empty one at the end is a key of that map.
func leaves(document any, at ...any) (all [][]any) {
	at = slices.Clip(at)
	switch d := document.(type) {
	case map[string]any:
		all = append(all, append(at, ""))
		for key, value := range d {
			all = append(all, leaves(value, append(at, key)...)...)
		}
	case []any:
		for _, value := range d[:min(len(d), 1)] {
			all = append(all, leaves(value, append(at, 0)...)...)
		}
	case string:
		all = append(all, at)
	}
	return all
}

// with is a document, as JSON, that has a value at a leaf, and what leads to it.
func with(document []byte, value string, at []any) ([]byte, error) {
	part := any(value)
	for _, key := range slices.Backward(at) {
		if name, ok := key.(string); ok {
			part = map[string]any{cmp.Or(name, value): part}
		} else {
			part = []any{part}
		}
	}
	return jsonpatch.MergePatch(document, []byte(asJSON(part)))
}

// hostile values each have a mark by which they are found in requests.
const mark = "hstl"

var hostile = []string{
	mark + ",x", mark + "=x", mark + "\\,x", "../../../" + mark, "../" + mark, mark + "/../../version", "/" + mark, mark + "/", mark + "\nx", mark + "\x00x",
	mark + "%2fx", mark + "?x=y", mark + "#x", mark + "&x=y", mark + "\u202ex", mark + strings.Repeat("x", 1<<10), mark + " in (x)", "!" + mark,
}

// escaped reports whether a hostile value got out of its place in a request. Authors may write any label selector.
func escaped(asked *url.URL, value string) bool {
	whole := func(s string) bool { return !strings.Contains(s, mark) || strings.Contains(s, value) }
	isWhole := path.Clean(asked.Path) == asked.Path
	for segment := range strings.SplitSeq(asked.EscapedPath(), "/") {
		s, err := url.PathUnescape(segment)
		isWhole = isWhole && err == nil && whole(s)
	}
	query, err := url.ParseQuery(asked.RawQuery)
	field, fieldErr := fields.ParseSelector(query.Get("fieldSelector"))
	for _, r := range field.Requirements() {
		isWhole = isWhole && whole(r.Value) && !strings.Contains(r.Field, mark)
	}
	_, labelErr := labels.Parse(query.Get("labelSelector"))
	query.Del("fieldSelector")
	query.Del("labelSelector")
	return !isWhole || errors.Join(err, fieldErr, labelErr) != nil || strings.Contains(query.Encode(), mark)
}

// reviews that an API server sends, by the path of a handler: their operation, group, resource, namespace, object and oldObject.
var reviews = map[string][][6]string{
	webhook.BindPattern: {{"CREATE", "example.org", "claims", "team", asks}},
	webhook.CheckPattern: {
		{"CREATE", "example.org", "claims", "team", names}, {"UPDATE", "example.org", "claims", "team", names, `{"metadata": {"name": "a", "namespace": "team"}}`},
	},
	v1beta1.GuardPath:    {{"CREATE", "example.org", "golds", "team", marked}, {"UPDATE", "example.org", "golds", "team", marked, unmarked}},
	v1beta1.DeletionPath: {{"DELETE", "example.org", "golds", "team", "", strings.Replace(unmarked, "new", "known", 1)}},
	v1beta1.RegistrationPath: {
		{"CREATE", "classbind.io", "claimkinds", "", newClaimKind}, {"UPDATE", "classbind.io", "classkinds", "", newClassKind, newClassKind},
	},
}

const (
	asks  = `{"metadata": {"name": "a", "namespace": "team", "annotations": {}}, "spec": {"classSelector": {"matchLabels": {"tier": "known"}}}}`
	names = `{"metadata": {"name": "a", "namespace": "team", "annotations": {}}, "spec": {"classRef": {"apiVersion": "example.org/v1", ` +
		`"kind": "Gold", "namespace": "team", "name": "unknown"}}}`
	unmarked     = `{"metadata": {"name": "new", "namespace": "team", "uid": "u-1", "resourceVersion": "7", "annotations": {}}}`
	marked       = `{"metadata": {"name": "new", "namespace": "team", "uid": "u-1", "resourceVersion": "7", "annotations": {"default": "true"}}}`
	newClassKind = `{"metadata": {"name": "golds.example.org", "annotations": {}}, "spec": {"claimKinds": [{"name": "others.example.org"}]}}`
	newClaimKind = `{"metadata": {"name": "others.example.org", "annotations": {}}, "spec": {"claims": {"resource": "claims.example.org",
	"version": "v1"}, "reference": {"path": ".spec.classRef"},
		"whenUnmatched": "BindLater", "classes": {"kinds": [{"name": "golds.example.org"}]}}}`
)

// TestReviewsAreNotBelieved sends each handler each field of a review, and of the objects in it, with hostile values.
func TestReviewsAreNotBelieved(t *testing.T) { synctest.Test(t, reviewsAreNotBelieved) } // A review may wait for what never comes.

func reviewsAreNotBelieved(t *testing.T) {
	api := &askedAPI{}
	mgr := newWebhooks(t, api, logr.Discard())
	metadata, specs := filled(reflect.TypeFor[metav1.ObjectMeta]()), map[string]any{
		"claimkinds": filled(reflect.TypeFor[v1beta1.ClaimKind]()),
		"classkinds": filled(reflect.TypeFor[v1beta1.ClassKind]()),
	}
	sent, reached := 0, 0
	send := func(path string, review []byte, value string) (code, asked int) {
		api.take()
		w := post(t, mgr, path, review)
		urls := api.take()
		for _, u := range urls {
			assert.False(t, escaped(u, value), "%q escapes in what %s asks for: %s", value, path, u)
		}
		assert.Less(t, w.Code, http.StatusInternalServerError, "%s should not fail with %q: %s", path, value, w.Body)
		sent, reached = sent+1, reached+len(urls)
		return w.Code, len(urls)
	}
	for _, pattern := range mgr.registered.paths {
		require.NotEmpty(t, reviews[pattern], "What does an API server send to %s?", pattern)
		at, all := strings.Replace(pattern, "{name}", "claims.example.org", 1), 0
		for _, r := range reviews[pattern] {
			base := fmt.Appendf(nil, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "5e1f", "name": "a", "operation": %[1]q,
				"kind": {"group": %[2]q, "version": "v1", "kind": "Any"}, "resource": {"group": %[2]q, "version": "v1", "resource": %[3]q},
				"requestResource": {"group": %[2]q, "version": "v1", "resource": %[3]q}, "namespace": %[4]q, "object": %[5]s, "oldObject": %[6]s,
				"userInfo": {"username": "alice", "groups": ["devs"]}}}`, r[0], r[1], r[2], r[3], cmp.Or(r[4], "null"), cmp.Or(r[5], "null"))
			code, asked := send(at, base, mark)
			require.Equal(t, http.StatusOK, code, "%s should answer what an API server sends.", pattern)
			all += asked
			document, fields := map[string]any{}, map[string][]any{}
			require.NoError(t, json.Unmarshal(base, &document))
			for _, l := range slices.Concat(leaves(document), leaves(filled(reflect.TypeFor[admissionv1.AdmissionRequest]()), "request"),
				leaves(metadata, "request", "object", "metadata"), leaves(metadata, "request", "oldObject", "metadata"), leaves(specs[r[2]], "request", "object")) {
				fields[fmt.Sprint(l)] = l
			}
			for _, l := range fields {
				for _, value := range hostile {
					review, err := with(base, value, l)
					require.NoError(t, err)
					send(at, review, value)
				}
			}
			for _, value := range hostile {
				send(strings.Replace(pattern, "{name}", url.PathEscape(value), 1), base, value)
			}
		}
		if pattern != v1beta1.DeletionPath { // It answers from memory.
			assert.Positive(t, all, "%s should ask the API server, or this test sees nothing.", pattern)
		}
	}
	t.Logf("%d reviews, %d requests", sent, reached)
}

// TestEveryReviewIsSeen sends each handler a review that it leaves alone, and a dry run of it.
func TestEveryReviewIsSeen(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: 1})
	mgr := newWebhooks(t, &askedAPI{}, log)
	require.Len(t, mgr.registered.paths, 5)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(mgr.metrics))
	for _, pattern := range mgr.registered.paths {
		name := strings.Split(pattern, "/")[1]
		answers := func() (n float64) {
			for key, value := range controllertest.Scraped(t, registry) {
				if strings.HasPrefix(key, "reviews_total ") && strings.HasSuffix(key, " webhook="+name) {
					n += value
				}
			}
			return n
		}
		for request, want := range map[string]int{`"operation":"CONNECT"`: 1, `"operation":"CONNECT","dryRun":true`: 0} {
			before := answers()
			lines = nil
			w := post(t, mgr, strings.Replace(pattern, "{name}", "claims.example.org", 1),
				[]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"5e1f",`+request+`}}`))
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			require.Len(t, lines, 1, "%s should log one line.", pattern)
			assert.Contains(t, lines[0], `"requestUID"="5e1f"`, "We should find the line by the request of the audit log.")
			assert.Equal(t, want, int(answers()-before), "%s should count each answer, and no dry run: %s", pattern, request)
		}
	}
}
