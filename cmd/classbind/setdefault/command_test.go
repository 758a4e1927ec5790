package setdefault

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// TestSlowWrite has an API server that takes longer for a write than reads may.
func TestSlowWrite(t *testing.T) {
	const forReads = 50 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2 * forReads):
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion": "test/v1", "kind": "A", "metadata": {"name": "new"}}`))
	}))
	t.Cleanup(server.Close)
	c, err := newCluster(&rest.Config{Host: server.URL, Timeout: forReads})
	require.NoError(t, err)
	object := &unstructured.Unstructured{}
	object.SetName("new")
	err = c.setMark(t.Context(), newStoredClass(fakeKind("A", "as.test", false).ClassKind, object), nil, false)
	require.NoError(t, err, "We should know the outcome of a write.")
}
