package cluster

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
)

func TestResolve(t *testing.T) {
	golds := metav1.APIResource{Name: "golds", Kind: "Gold", Verbs: metav1.Verbs{"create", "get", "list", "watch"}}
	status := metav1.APIResource{Name: "golds/status", Kind: "Gold", Verbs: metav1.Verbs{"get"}}
	silvers := metav1.APIResource{Name: "silvers", Kind: "Silver", Verbs: metav1.Verbs{"list", "watch"}}
	namespaced := golds
	namespaced.Namespaced = true
	listOnly := golds
	listOnly.Verbs = metav1.Verbs{"list"}
	unavailable := controllertest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	gold := func(version string) Resource {
		return Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: version, Kind: "Gold"}}
	}
	list := controllertest.APIResources
	// of the group are these versions and what they answer, if anything, the preferred one first.
	of := func(versionsAndAnswers ...any) map[string]any {
		var versions []string
		answers := map[string]any{}
		for pair := range slices.Chunk(versionsAndAnswers, 2) {
			version := fmt.Sprint(pair[0])
			versions = append(versions, version)
			if pair[1] != nil {
				answers["/apis/example.org/"+version] = pair[1]
			}
		}
		answers["/apis/example.org"] = controllertest.APIGroup(versions...)
		return answers
	}
	core := func(answer any) map[string]any { return map[string]any{"/api/v1": answer} }

	type want struct {
		resource Resource
		err      error // one of the sentinels
		text     string
	}
	none := want{err: ErrNotInstalled, text: "install its CRD"}
	for name, tc := range map[string]struct {
		reason  string
		name    string // golds.example.org, unless set
		version string
		answers map[string]any
		want    want
	}{
		"Preferred": {
			reason:  "We should take the version that the API server prefers.",
			answers: of("v1", list(status, golds), "v2", list(golds)),
			want:    want{resource: gold("v1")},
		},
		"Namespaced": {
			reason:  "We should say that a resource is namespaced.",
			answers: of("v1", list(namespaced)), want: want{resource: Resource{GroupVersionKind: gold("v1").GroupVersionKind, Namespaced: true}},
		},
		"Core": {
			reason: "We should find a resource of the core group.", name: "golds",
			answers: core(list(golds)), want: want{resource: Resource{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Gold"}}},
		},
		"Fallback": {
			reason:  "We should take another version where the preferred one does not have the resource.",
			answers: of("v1", list(silvers), "v2", list(golds)),
			want:    want{resource: gold("v2")},
		},
		"FallbackForVerbs": {
			reason:  "We should take another version where the preferred one lacks a verb.",
			answers: of("v1", list(listOnly), "v2", list(golds)),
			want:    want{resource: gold("v2")},
		},
		"VersionGone": {
			reason:  "We should pass over a version that went between two requests.",
			answers: of("v1", nil, "v2", list(golds)),
			want:    want{resource: gold("v2")},
		},
		"Version": {
			reason: "We should take the version that is asked for, whatever the API server prefers.", version: "v1",
			answers: of("v2", unavailable, "v1", list(golds)), want: want{resource: gold("v1")},
		},
		"VersionNotServed": {
			reason: "We should name the versions that are served, and what helps.", version: "v1beta1",
			answers: of("v2", list(golds), "v1", list(golds)), want: want{
				resource: gold("v2"), err: ErrVersionNotServed,
				text: `the API server does not serve the version for which the paths are written, "v1beta1", but v2, v1: write the paths for one of ` +
					`these, and set spec.claims.version to it`,
			},
		},
		"VersionOfNothing": {
			reason:  "We should not say that another version is served where none is.",
			version: "v1beta1",
			answers: of("v1", list(silvers)),
			want:    none,
		},
		"NoGroup": {reason: "We should say that it is not installed where there is no such group.", want: none},
		"NoPlural": {
			reason:  "We should say that it is not installed where the group has other resources.",
			answers: of("v1", list(silvers, status)),
			want:    none,
		},
		"MissingVerbs": {
			reason:  "We should name the verbs that are missing.",
			answers: of("v1", list(listOnly)),
			want:    want{err: ErrUnsuitable, text: `does not serve it with the verbs ["watch"]`},
		},
		"GroupUnavailable": {
			reason:  "We should not take an API server that is down for a resource that is not there.",
			answers: map[string]any{"/apis/example.org": unavailable}, want: want{text: `cannot look up the API group "example.org": `},
		},
		"VersionUnavailable": {
			reason:  "We should not take the next version because the preferred one's API server is down.",
			answers: of("v1", unavailable, "v2", list(golds)), want: want{text: `cannot look up "golds.example.org": `},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewResolver(controllertest.NewAPIServer(t, tc.answers))
			require.NoError(t, err)
			found, err := r.Resolve(t.Context(), cmp.Or(tc.name, "golds.example.org"), tc.version, "list", "watch")
			assert.Equal(t, tc.want.resource, found, tc.reason)
			if tc.want.text == "" {
				assert.NoError(t, err, tc.reason)
				return
			}
			require.ErrorContains(t, err, tc.want.text, tc.reason)
			for _, sentinel := range []error{ErrNotInstalled, ErrUnsuitable, ErrVersionNotServed} {
				if sentinel == tc.want.err { //nolint:errorlint // Which of the sentinels is wanted.
					assert.ErrorIs(t, err, sentinel, tc.reason)
				} else {
					assert.NotErrorIs(t, err, sentinel, tc.reason)
				}
			}
		})
	}
}

func TestSchemas(t *testing.T) {
	crd := map[string]any{"kind": "CustomResourceDefinition", "spec": map[string]any{"group": "example.org"}}
	core, vendor := map[string]any{"openapi": "3.0.0"}, map[string]any{"openapi": "3.0.1"}
	r, err := NewResolver(controllertest.NewAPIServer(t, map[string]any{
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/golds.example.org": crd,
		"/openapi/v3/api/v1": core, "/openapi/v3/apis/example.org/v1": vendor,
	}))
	require.NoError(t, err)
	got, err := r.CRD(t.Context(), "golds.example.org")
	require.NoError(t, err)
	assert.JSONEq(t, `{"kind":"CustomResourceDefinition","spec":{"group":"example.org"}}`, string(got))
	_, err = r.CRD(t.Context(), "volumes")
	require.True(t, apierrors.IsNotFound(err), "We should report that there is no CRD: %v", err)
	got, err = r.OpenAPI(t.Context(), schema.GroupVersion{Version: "v1"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"openapi":"3.0.0"}`, string(got), "We should read the core's group where it is.")
	got, err = r.OpenAPI(t.Context(), schema.GroupVersion{Group: "example.org", Version: "v1"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"openapi":"3.0.1"}`, string(got))
}

func TestPermitted(t *testing.T) {
	const reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	answer := func(allowed bool) any {
		return map[string]any{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": map[string]any{"allowed": allowed}}
	}
	for name, tc := range map[string]struct {
		reason    string
		answer    any
		want      string // an error
		forbidden bool
	}{
		"Allowed": {reason: "We should say nothing where nothing is wrong.", answer: answer(true)},
		"Forbidden": {
			reason:    "We should say which verb it is.",
			answer:    answer(false),
			want:      "golds.example.org is forbidden: classbind may not list it",
			forbidden: true,
		},
		"MayNotAsk": {
			reason: "We should not take a refused question for an answer.", answer: controllertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden),
			want: `cannot determine whether classbind may list "golds.example.org": Forbidden`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewResolver(controllertest.NewAPIServer(t, map[string]any{reviews: tc.answer}))
			require.NoError(t, err)
			err = r.Permitted(t.Context(), "golds.example.org", "list", "watch")
			if tc.want == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.EqualError(t, err, tc.want, tc.reason)
			assert.Equal(t, tc.forbidden, apierrors.IsForbidden(err), tc.reason)
		})
	}
}

func TestSuited(t *testing.T) {
	kind := func(resource string, path v1beta1.FieldPath) *v1beta1.ClaimKind {
		k := &v1beta1.ClaimKind{Spec: v1beta1.ClaimKindSpec{Claims: v1beta1.Claims{Resource: resource}}}
		k.Name = "claims.example.org"
		k.Spec.Reference.Path = path
		return k
	}
	require.ErrorIs(t, CheckBindable(kind("pods", ".spec.priorityClassName")), ErrUnsuitable,
		"We should refuse no pod: the API server has set its priority before it asks us.")
	require.NoError(t, CheckBindable(kind("pods", ".spec.runtimeClassName")), "We should bind pods by what is decided after us.")
	assert.NoError(t, CheckBindable(kind("jobs.batch", ".spec.priorityClassName")))
}

// TestCaching asks three times for each document.
func TestCaching(t *testing.T) {
	asked, status := map[string]int{}, map[string]int{"/missing": http.StatusNotFound, "/down": http.StatusServiceUnavailable}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		w.WriteHeader(cmp.Or(status[r.URL.Path], http.StatusOK))
		_, _ = w.Write(fmt.Appendf(nil, "%q", strings.Repeat("x", map[string]int{"/first": 7, "/second": 7, "/third": 7}[r.URL.Path]<<20)))
	}))
	defer server.Close()
	uncached, err := NewResolver(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	r := uncached.Caching()
	for range 3 {
		for _, path := range []string{"/document", "/missing", "/down", "/first", "/second", "/third"} {
			_ = r.get(t.Context(), new(any), path)
		}
	}
	assert.Equal(
		t, map[string]int{"/document": 1, "/missing": 1, "/down": 3, "/first": 1, "/second": 1, "/third": 3}, asked,
		"We should cache what is final, within the limit.",
	)
}
