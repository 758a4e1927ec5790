package registry

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
)

// answers is an http.RoundTripper.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// TestDeepClasses lists and watches a class so deep that a list or an event around it is
// deeper than decoders go, of a kind of which more than metadata is read.
func TestDeepClasses(t *testing.T) {
	const deepest = 10_000 // The API server takes no deeper object: it reads it with sigs.k8s.io/json.
	class := `{"apiVersion":"example.org/v1","kind":"Gold","metadata":{"name":%q,"resourceVersion":"7"},"spec":{"weight":3,"other":%s}}`
	deep, flat := fmt.Sprintf(class, "deep", strings.Repeat("[", deepest-2)+strings.Repeat("]", deepest-2)), fmt.Sprintf(class, "flat", "[]")
	client, err := newClassClient(&rest.Config{Host: "http://none", Transport: answers(func(r *http.Request) (*http.Response, error) {
		body := `{"apiVersion":"example.org/v1","kind":"GoldList","metadata":{"resourceVersion":"7"},"items":[` + deep + "," + flat + `]}`
		if r.URL.Query().Get("watch") != "" {
			body = `{"type":"ADDED","object":` + deep + `}` + `{"type":"ADDED","object":` + flat + `}`
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})})
	require.NoError(t, err)
	kind := selector.NewClassKind(&v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{Weight: v1beta1.Source{Path: ".spec.weight"}}}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	list, err := client.list(t.Context(), kind, "", metav1.ListOptions{})
	require.NoError(t, err, "We should read a list with a deep class in it.")
	all, err := classes(nil, kind, list)
	require.NoError(t, err)
	assert.Len(t, all, 2)
	events, err := client.watch(t.Context(), kind, metav1.ListOptions{})
	require.NoError(t, err)
	for _, name := range []string{"deep", "flat"} {
		event := <-events.ResultChan()
		require.Equal(t, apiwatch.Added, event.Type, "We should read an event about a deep class: %v", event.Object)
		m, err := meta.Accessor(event.Object)
		require.NoError(t, err)
		assert.Equal(t, name, m.GetName())
	}
}
