package latebinding

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/controller/controllertest"
)

// claimServer is the part of an API server that claims need: it lists in pages and by a
// watch, watches, patches with the library of kube-apiserver, and takes events.
type claimServer struct {
	*httptest.Server

	mu       sync.Mutex
	version  int
	claims   map[string]*unstructured.Unstructured
	watchers map[chan map[string]any]struct{}
	// deaf watches show no changes.
	deaf    bool
	events  map[string]*corev1.Event
	patches map[string]int // accepted ones, by claim
	// tries and created count patches and creations of events, refused ones included.
	tries, created atomic.Int64
	// refuses requests with a code, by verb. Another webhook denies patches in a namespace, as in "patch team-a".
	refuses map[string]int
	// prunes the references of claims in these namespaces, as for a field that the schema does not have.
	prunes map[string]bool
	// pages are lists, and reads of one claim.
	pages, reads int
	// delay of each patch.
	delay time.Duration
}

func newClaimServer(t testing.TB) *claimServer {
	t.Helper()
	s := &claimServer{
		claims: map[string]*unstructured.Unstructured{}, watchers: map[chan map[string]any]struct{}{},
		events: map[string]*corev1.Event{}, patches: map[string]int{}, refuses: map[string]int{},
		prunes: map[string]bool{},
	}
	mux := http.NewServeMux()
	const claims = "/apis/example.org/v1/namespaces/{namespace}/claims"
	mux.HandleFunc("PATCH "+claims+"/{name}", s.patch)
	mux.HandleFunc("POST /", s.create)
	for _, path := range []string{"/apis/example.org/v1/claims", claims} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				s.watch(w, r)
			} else {
				s.list(w, r)
			}
		})
	}
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// config for clients that speak JSON, events included.
func (s *claimServer) config() *rest.Config {
	return &rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// set stores a claim, NAMESPACE/NAME, with this spec, and maybe more metadata.
func (s *claimServer) set(t testing.TB, claim, spec string, change ...func(*unstructured.Unstructured)) {
	t.Helper()
	namespace, name, _ := strings.Cut(claim, "/")
	u := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"example.org/v1","kind":"Claim","metadata":{},"spec":%s}`, spec), &u.Object))
	u.SetNamespace(namespace)
	u.SetName(name)
	for _, f := range change {
		f(u)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(claim, u)
}

func (s *claimServer) store(claim string, u *unstructured.Unstructured) {
	s.version++
	event := "MODIFIED"
	old := s.claims[claim]
	if old == nil {
		event = "ADDED"
		u.SetUID(uidOf(s.version))
	} else {
		u.SetUID(old.GetUID())
	}
	u.SetResourceVersion(strconv.Itoa(s.version))
	s.claims[claim] = u
	s.show(event, u)
}

func (s *claimServer) show(event string, u *unstructured.Unstructured) {
	if s.deaf {
		return
	}
	for w := range s.watchers {
		w <- map[string]any{"type": event, "object": u.Object}
	}
}

// catchUp ends a time in which changes were not shown.
func (s *claimServer) catchUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = false
	for _, u := range s.claims {
		s.show("MODIFIED", u)
	}
}

func (s *claimServer) remove(claim string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.claims[claim].DeepCopy()
	delete(s.claims, claim)
	s.version++
	u.SetResourceVersion(strconv.Itoa(s.version))
	s.show("DELETED", u)
}

// classes of the claims, "" for those that have none.
func (s *claimServer) classes() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	classes := map[string]string{}
	for claim, u := range s.claims {
		classes[claim], _, _ = unstructured.NestedString(u.Object, "spec", "classRef", "name")
	}
	return classes
}

func (s *claimServer) bound() int {
	n := 0
	for _, class := range s.classes() {
		if class != "" {
			n++
		}
	}
	return n
}

// notes are the notes of the events with a reason, by claim.
func (s *claimServer) notes(reason string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := map[string]string{}
	for _, e := range s.events {
		if e.Reason == reason {
			notes[e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name] = e.Message
		}
	}
	return notes
}

func (s *claimServer) tried() int     { return int(s.tries.Load()) }
func (s *claimServer) creations() int { return int(s.created.Load()) }

// prune the references of claims in a namespace, or do not.
func (s *claimServer) prune(namespace string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prunes[namespace] = is
}

// refuse requests with a code. The code 0 refuses none.
func (s *claimServer) refuse(verb string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses[verb] = code
}

// refused answers a request that is to be refused, and reports whether it did. The message is an authorizer's.
func (s *claimServer) refused(w http.ResponseWriter, verb, what string) bool {
	s.mu.Lock()
	code := s.refuses[verb]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if code != 0 {
		s.fail(w, code, `claims.example.org `+what+`is forbidden: User "classbind" cannot `+verb+` resource "claims" in API group "example.org" at the cluster scope`)
	}
	return code != 0
}

func (s *claimServer) fail(w http.ResponseWriter, code int, message string) {
	reason := map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonAlreadyExists}[code]
	status := controllertest.Failure(int32(code), reason) //nolint:gosec // An HTTP status.
	status.Message = message
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}

func (s *claimServer) list(w http.ResponseWriter, r *http.Request) {
	if s.refused(w, "list", "") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	limit, from := q.Get("limit"), q.Get("continue")
	names := slices.Sorted(maps.Keys(s.claims))
	if name, one := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name="); one {
		s.reads++
		names = slices.DeleteFunc(names, func(n string) bool { return n != r.PathValue("namespace")+"/"+name })
	} else {
		s.pages++
	}
	first, _ := strconv.Atoi(from)
	names = names[first:]
	metadata := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	if n, _ := strconv.Atoi(limit); n > 0 && n < len(names) {
		names, metadata["continue"] = names[:n], strconv.Itoa(first+n)
	}
	items := []any{}
	for _, name := range names {
		items = append(items, s.claims[name].Object)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "example.org/v1", "kind": "ClaimList", "metadata": metadata, "items": items})
}

func (s *claimServer) watch(w http.ResponseWriter, r *http.Request) {
	lists := r.URL.Query().Get("sendInitialEvents") == "true"
	if lists && s.refused(w, "watchlist", "") || s.refused(w, "watch", "") {
		return
	}
	events := make(chan map[string]any, 100_000)
	s.mu.Lock()
	if lists {
		for _, u := range s.claims {
			events <- map[string]any{"type": "ADDED", "object": u.Object}
		}
		events <- map[string]any{"type": "BOOKMARK", "object": map[string]any{
			"apiVersion": "example.org/v1", "kind": "Claim",
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}},
		}}
	}
	s.watchers[events] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, events)
		s.mu.Unlock()
	}()
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	for {
		_ = flush.Flush()
		select {
		case <-r.Context().Done():
			return
		case event := <-events:
			if encoder.Encode(event) != nil {
				return
			}
		}
	}
}

func (s *claimServer) patch(w http.ResponseWriter, r *http.Request) {
	s.tries.Add(1)
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if s.refused(w, "patch", strconv.Quote(name)+" ") {
		return
	}
	time.Sleep(s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	claim := namespace + "/" + name
	before := s.claims[claim]
	if before == nil {
		s.fail(w, http.StatusNotFound, "not found")
		return
	}
	if s.refuses["invalid "+namespace] != 0 { // As kube-apiserver answers for a rule of the schema.
		invalid := field.Invalid(field.NewPath("spec"), "object", "classRef cannot be added after creation")
		status := apierrors.NewInvalid(schema.GroupKind{Group: "example.org", Kind: "Claim"}, name, field.ErrorList{invalid}).ErrStatus
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	if code := s.refuses["patch "+namespace]; code != 0 { // As kube-apiserver answers, with the other webhook's code.
		s.fail(w, code, `admission webhook "other" denied the request`)
		return
	}
	body, _ := io.ReadAll(r.Body)
	decoded, err := jsonpatch.DecodePatch(body)
	if err == nil {
		raw, _ := json.Marshal(before.Object)
		if raw, err = decoded.Apply(raw); err == nil {
			after := &unstructured.Unstructured{}
			if err = json.Unmarshal(raw, &after.Object); err == nil {
				if s.prunes[after.GetNamespace()] {
					unstructured.RemoveNestedField(after.Object, "spec", "classRef")
				}
				s.patches[claim]++
				s.store(claim, after)
				_ = json.NewEncoder(w).Encode(after.Object)
				return
			}
		}
	}
	// As kube-apiserver answers, which does not say why.
	status := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.WriteHeader(http.StatusUnprocessableEntity)
	_ = json.NewEncoder(w).Encode(status)
}

func (s *claimServer) create(w http.ResponseWriter, r *http.Request) {
	s.created.Add(1)
	if s.refused(w, "create", "") {
		return
	}
	e := &corev1.Event{}
	if err := json.NewDecoder(r.Body).Decode(e); err != nil {
		s.fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events[e.Name] != nil {
		s.fail(w, http.StatusConflict, "already exists")
		return
	}
	s.events[e.Name] = e
	_ = json.NewEncoder(w).Encode(e)
}

// eventually is for what the API server and we do in the background, on a busy machine, too.
func eventually(t testing.TB, reason string, test func(c *assert.CollectT)) {
	t.Helper()
	require.EventuallyWithT(t, test, 3*time.Minute, 5*time.Millisecond, reason)
}
