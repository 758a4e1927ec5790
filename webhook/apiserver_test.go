package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/webhook/leasetest"
	"github.com/classbind/classbind/webhook/onedefault"
)

const otherClaimKindName = "mysqlinstances.database.example.org"

// pathClasses have their marks in fields, and serve two claim kinds, which are not named in order.
var pathClasses = inventory.NewClassKind(&v1beta1.ClassKind{
	ObjectMeta: metav1.ObjectMeta{Name: "pathclasses.example.org"},
	Spec: v1beta1.ClassKindSpec{
		ClaimKinds: []v1beta1.ClaimKindLink{{Name: claimKindName}, {Name: otherClaimKindName}},
		Default:    v1beta1.Source{Path: ".spec.isDefault"},
		Weight:     v1beta1.Source{Path: ".spec.weight"},
	},
}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "PathClass"}, false)

// object is the JSON of a class with the uid NAME-1, with more in its metadata and beside it.
func object(name, metadata, rest string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":"%s-1","resourceVersion":"10"%s}%s}`, name, name, metadata, rest)
}

const (
	marked       = `,"annotations":{"default":"true"}`
	markedInAWS  = `,"namespace":"aws"` + marked
	beingDeleted = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
)

// The classes used most: an SQLClass and a PathClass, each without its mark and with it.
var (
	silver, silverMarked = object("silver", "", ""), object("silver", marked, "")
	path, pathMarked     = object("path", "", `,"spec":{}`), object("path", "", `,"spec":{"isDefault":true}`)
)

// forbidden is a refusal of what details name.
func forbidden(message string, details metav1.StatusDetails, audit map[string]string) *admissionv1.AdmissionResponse {
	return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, message, details, audit)
}

func refusal(code int32, reason metav1.StatusReason, message string, details metav1.StatusDetails, audit map[string]string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{
		Result:           &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &details},
		AuditAnnotations: audit,
	}
}

// newGuardRequest asks for an update, or for a creation if there is no old object.
func newGuardRequest(kind *inventory.ClassKind, before, after string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	gvk, gvr := kind.GroupVersionKind, kind.Resource()
	r := &admissionv1.AdmissionRequest{
		UID: "5e1f", Operation: admissionv1.Create,
		Kind:     metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		Resource: metav1.GroupVersionResource{Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource},
		Object:   runtime.RawExtension{Raw: []byte(after)},
	}
	if before != "" {
		r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(before)
	}
	for _, f := range change {
		f(r)
	}
	return r
}

// apiServer has class kinds, classes and Leases.
type apiServer struct {
	*leasetest.Leases

	kinds   map[string]*inventory.ClassKind
	classes map[string]string // objects by resource, namespace and name
	// fail is called before each read of something else than Leases, such as "get class", with the name.
	fail func(operation, name string) error

	mu sync.Mutex
}

func newAPIServer() *apiServer {
	return &apiServer{
		kinds:   map[string]*inventory.ClassKind{sqlClasses.Name: sqlClasses, rdsClasses.Name: rdsClasses, pathClasses.Name: pathClasses},
		classes: map[string]string{}, Leases: leasetest.New(),
		fail: func(string, string) error { return nil },
	}
}

// guard returns a Guard that asks this API server and knows the inventory.
func (s *apiServer) guard(i *selector.Inventory) *Guard {
	i.SetClaimKind(selector.NewClaimKind(&v1beta1.ClaimKind{
		ObjectMeta: metav1.ObjectMeta{Name: otherClaimKindName},
		Spec:       v1beta1.ClaimKindSpec{Classes: v1beta1.Classes{Namespaces: v1beta1.ClassNamespaces{From: v1beta1.FromAll}}},
	}))
	return &Guard{
		Snapshot: i.Snapshot, ClassKind: s.classKind, Class: s.class,
		ClaimKind: asClaimKind(false, nil),
		Namespace: func(_ context.Context, name string) (bool, error) {
			return name != "made-up", s.fail("get namespace", name)
		},
		Leases: s.Leases, Window: 90 * time.Second, Sightings: onedefault.NewSightings(),
	}
}

func (s *apiServer) classKind(_ context.Context, name string) (*inventory.ClassKind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kinds[name], s.fail("get class kind", name)
}

func (s *apiServer) class(_ context.Context, kind *inventory.ClassKind, namespace, name string) (metav1.Object, *inventory.Class, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.classes[strings.Join([]string{kind.Name, namespace, name}, "/")]
	if err := s.fail("get class", name); err != nil || !ok {
		return nil, nil, err
	}
	u, class, err := decodeClass(kind, name, []byte(text))
	return u, class, err
}

// leaseOf a claim kind.
func leaseOf(claimKind string) string {
	return onedefault.LeaseName(inventory.Seat{ClaimKind: claimKind})
}

// holds stores a Lease of a claim kind, held by a class with this uid and base.
func (s *apiServer) holds(claimKind, class, uid, base string) {
	s.Put(newLease(claimKind, class, uid, base))
}

// newLease with one write, whose id is "id".
func newLease(claimKind, class, uid, base string) *coordinationv1.Lease {
	pending := `[{"id":"id"}]`
	if base != "" {
		pending = fmt.Sprintf(`[{"id":"id","from":%q}]`, base)
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:        leaseOf(claimKind),
			Annotations: map[string]string{v1beta1.HolderUIDAnnotation: uid, v1beta1.HolderPendingAnnotation: pending},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &class},
	}
}

var anyID = regexp.MustCompile(`"id":"[^"]+"`)

// stores the old object of a request, unless the class is stored already.
func (s *apiServer) stores(request *admissionv1.AdmissionRequest) *apiServer {
	old := unstructured.Unstructured{}
	if request.OldObject.Raw == nil || json.Unmarshal(request.OldObject.Raw, &old.Object) != nil {
		return s
	}
	key := strings.Join([]string{request.Resource.Resource + "." + request.Resource.Group, old.GetNamespace(), old.GetName()}, "/")
	if s.classes[key] == "" {
		s.classes[key] = string(request.OldObject.Raw)
	}
	return s
}

// held are the Leases that have a holder, without their versions and ids.
func (s *apiServer) held() map[string]*coordinationv1.Lease {
	held := map[string]*coordinationv1.Lease{}
	for name, l := range s.All {
		if l.Spec.HolderIdentity != nil {
			held[name] = l.DeepCopy()
			held[name].ResourceVersion = ""
			held[name].Annotations[v1beta1.HolderPendingAnnotation] = anyID.ReplaceAllString(l.Annotations[v1beta1.HolderPendingAnnotation], `"id":"id"`)
		}
	}
	return held
}

// mustReview returns an answer.
func mustReview(t *testing.T, review Reviewer, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	response, err := review(t.Context(), request)
	require.NoError(t, err)
	return response
}

// isMalformed reports whether a review is refused that no API server sends.
func isMalformed(err error) bool {
	bad, is := errors.AsType[*badRequest](err)
	return is && bad.status == http.StatusBadRequest
}

// inBubble runs a test with a clock of its own.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// inDryRunToo runs a test once as it is, and once in a dry run.
func inDryRunToo(t *testing.T, name string, request *admissionv1.AdmissionRequest, test func(*testing.T, *admissionv1.AdmissionRequest)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { test(t, request) })
	dry := *request
	dry.DryRun = new(true)
	t.Run(name+"DryRun", func(t *testing.T) { test(t, &dry) })
}
