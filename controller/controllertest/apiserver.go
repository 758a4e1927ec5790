package controllertest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// NewAPIServer answers each path, with "?" and the field selector if there is one, with a Status, which is an error, or with another
// object. It answers any other path as an API server does if nothing is there.
func NewAPIServer(t *testing.T, answers map[string]any) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if selector := r.URL.Query().Get("fieldSelector"); selector != "" {
			path += "?" + selector
		}
		if text, plain := answers[path].(string); plain {
			http.Error(w, text, http.StatusNotFound) // As for a resource that is not served.
			return
		}
		assert.NoError(t, write(w, answers[path]))
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

// write an answer, which is a Status if nothing is there.
func write(w http.ResponseWriter, answer any) error {
	if answer == nil {
		answer = Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	w.Header().Set("Content-Type", "application/json")
	if s, failed := answer.(*metav1.Status); failed {
		w.WriteHeader(int(s.Code))
	}
	return json.NewEncoder(w).Encode(answer)
}

// Failure returns the Status of a failed request.
func Failure(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason),
	}
}

// APIGroup returns a group with the preferred version first.
func APIGroup(versions ...string) *metav1.APIGroup {
	g := &metav1.APIGroup{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: "example.org"}
	for _, v := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: "example.org/" + v, Version: v})
	}
	g.PreferredVersion = g.Versions[0]
	// The API server lists them by their own order, whichever it prefers.
	g.Versions[0], g.Versions[len(versions)-1] = g.Versions[len(versions)-1], g.Versions[0]
	return g
}

// APIResources returns the resources of one version.
func APIResources(resources ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, APIResources: resources}
}

// RequireError fails unless an error has this text; none, if that is empty.
func RequireError(t *testing.T, want string, err error, reason string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err, reason)
	} else {
		require.EqualError(t, err, want, reason)
	}
}
