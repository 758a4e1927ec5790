package latebinding

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// endedWatches show claims that are created and then deleted, each in a version of its own, up to version last. A watch ends after a
// hundred events, as an API server ends those that read slower than claims change.
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

func TestEndedWatches(t *testing.T) {
	const claims = 1050
	last := &atomic.Int64{}
	last.Store(1 + claims)
	s := httptest.NewServer(endedWatches(claims, last))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	client, err := NewClient(&rest.Config{Host: s.URL, QPS: -1})
	require.NoError(t, err)
	w := newLateWatch(t)
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

// TestOwner has a change take long, and a watch be replaced.
func TestOwner(t *testing.T) {
	const bound = `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`
	t.Run("LongChange", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newLateWatch(t)
			addClaim(t, w, claimJSON(1, bound))
			next, err := w.read(claimJSON(2, bound))
			require.NoError(t, err)
			end := make(chan struct{})
			go w.own(func(*claimState) { <-end })
			synctest.Wait()
			go w.Put(next)
			synctest.Wait()
			n, _ := w.counts()
			assert.Equal(t, ClaimCounts{Bound: 1}, n, "We should answer meanwhile, and make one change at a time.")
			close(end)
			synctest.Wait()
			n, _ = w.counts()
			assert.Equal(t, ClaimCounts{Bound: 2}, n, "We should make the next change then.")
		})
	})
	t.Run("Replaced", func(t *testing.T) {
		first, second := newLateWatch(t), newLateWatch(t)
		addClaim(t, first, claimJSON(1, bound))
		first.stop()
		addClaim(t, first, claimJSON(2, bound))
		n, _ := first.counts()
		assert.Equal(t, ClaimCounts{Bound: 1}, n, "We should answer still, and change nothing.")
		second.before = first
		assert.Len(t, first.state.bound.counts, 1, "We should count its claims until the next watch has.")
		second.Replace(nil)
		assert.Empty(t, first.state.bound.counts, "We should count no claim twice.")
		second.withdraw()
		second.own(func(*claimState) { assert.Fail(t, "We should change nothing any more.") })
	})
}
