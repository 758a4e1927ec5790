package latebinding

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// endedWatches show claims that are created and then deleted, each in a version of its
// own, up to version last. A watch ends after a hundred events, as an API server ends
// those that read slower than claims change.
func endedWatches(claims int, last *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		from, _ := strconv.Atoi(q.Get("resourceVersion"))
		if q.Get("sendInitialEvents") != "" {
			from = 1
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
		}
		for version := from + 1; version <= min(from+100, int(last.Load())); version++ {
			event, n := "ADDED", version-2
			if n >= claims {
				event, n = "DELETED", n-claims
			}
			_, _ = fmt.Fprintf(w, `{"type":%q,"object":{"metadata":{"namespace":"team-a","uid":"%d","name":"waits-%d","resourceVersion":"%d"},"spec":%s}}`+"\n", event, n, n, version, selecting(n, 20))
		}
	}
}

// TestEndedWatches checks that no claim is missed when a watch ends and another follows.
func TestEndedWatches(t *testing.T) {
	const claims = 1050
	last := &atomic.Int64{}
	last.Store(1 + claims)
	s := httptest.NewServer(endedWatches(claims, last))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	client, err := newClaimClient(&rest.Config{Host: s.URL, QPS: -1})
	require.NoError(t, err)
	w := newLateWatch(t)
	t.Cleanup(w.stop)
	w.start(client, func(error) {})
	eventually(t, "We should see all claims.", func(c *assert.CollectT) {
		n, synced := w.counts()
		assert.True(c, synced)
		assert.Equal(c, claims, n.Waiting)
	})
	last.Store(1 + 2*claims)
	eventually(t, "We should see all claims go.", func(c *assert.CollectT) {
		n, _ := w.counts()
		assert.Zero(c, n.Waiting)
	})
}
