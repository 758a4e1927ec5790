package latebinding

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
			_, _ = fmt.Fprintf(
				w, `{"type":%q,"object":{"metadata":{"namespace":"team-a","uid":"%d","name":"waits-%d","resourceVersion":"%d"},"spec":%s}}`+"\n",
				event, n, n, version, selecting(n, 20),
			)
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

// The API server of a claim kind may be a vendor's, and answer anything.
func TestClaimPage(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, answer string
		items          []string
		page           metav1.ListMeta
		err            string
	}{
		"Items": {
			reason: "We should pass on each item, and ignore what we do not know.",
			answer: `{"kind":"List","items":[{"a":1}, 2],"metadata":{"resourceVersion":"7","continue":"next","remainingItemCount":3}}`,
			items:  []string{`{"a":1}`, "2"}, page: metav1.ListMeta{ResourceVersion: "7", Continue: "next", RemainingItemCount: new(int64(3))},
		},
		"NoItems": {
			reason: "We should take a list of nothing.",
			answer: `{"items":null,"metadata":{"resourceVersion":"7"}}`,
			page:   metav1.ListMeta{ResourceVersion: "7"},
		},
		"OtherItems": {
			reason: "We should skip items that are no list.",
			answer: `{"items":{"a":1},"metadata":{"resourceVersion":"7"}}`,
			page:   metav1.ListMeta{ResourceVersion: "7"},
		},
		"Null":         {reason: "We should not take null for a list of nothing.", answer: `null`, err: "it has no metadata"},
		"NullMetadata": {reason: "We should not take it for a list.", answer: `{"metadata":null,"items":[]}`, err: "it has no metadata"},
		"Array":        {reason: "We should not take an array for a list.", answer: `[]`, err: "cannot read a list"},
		"OfTexts":      {reason: "We should not take texts for names.", answer: `["a","b"]`, err: "cannot read a list"},
		"Truncated":    {reason: "We should refuse half a list.", answer: `{"items":[{"a":1}`, items: []string{`{"a":1}`}, err: "unexpected EOF"},
		"WrongType":    {reason: "We should refuse a version that is no text.", answer: `{"metadata":{"resourceVersion":7}}`, err: "cannot read a list"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(tc.answer))
			}))
			t.Cleanup(server.Close)
			client, err := NewClient(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			var items []string
			page, err := client.Page(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "claims"}, "", metav1.ListOptions{}, func(raw []byte) error {
				items = append(items, string(raw))
				return nil
			})
			assert.Equal(t, tc.items, items, tc.reason)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.page, page, tc.reason)
		})
	}
}

// TestDeepClaims has a claim so deep that a list or an event around it is deeper than decoders go.
func TestDeepClaims(t *testing.T) {
	const deepest = 10_000 // The API server takes no deeper object: it reads it with sigs.k8s.io/json.
	deep := fmt.Sprintf(`{"classSelector":{"matchLabels":{"tier":"gold"}},"other":%s}`, strings.Repeat("[", deepest-2)+strings.Repeat("]", deepest-2))
	for name, pages := range map[string]bool{"Pages": true, "Streamed": false} {
		t.Run(name, func(t *testing.T) {
			s := newClaimServer(t)
			if pages {
				s.refuse("watchlist", http.StatusUnprocessableEntity)
			}
			s.set(t, "team-a/first", wantsGold)
			s.set(t, "team-a/second", deep)
			s.set(t, "team-a/third", wantsGold)
			r := newLateReplica(t, s, lateClaimKind())
			r.awaitCounts(t, ClaimCounts{Waiting: 3})
			eventually(t, "We should watch the claims.", func(c *assert.CollectT) {
				s.mu.Lock()
				defer s.mu.Unlock()
				assert.Len(c, s.watchers, 1)
			})
			s.set(t, "team-b/later", deep)
			s.set(t, "team-b/last", wantsGold)
			r.awaitCounts(t, ClaimCounts{Waiting: 5})
			r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
			r.lead(t)
			r.awaitCounts(t, ClaimCounts{Bound: 5})
		})
	}
}
