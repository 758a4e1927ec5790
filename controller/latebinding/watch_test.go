package latebinding

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/controller/controllertest"
)

// TestSeenMetadata checks what the Reflector goes by, to go on after a watch that ended.
func TestSeenMetadata(t *testing.T) {
	w := newLateWatch(t)
	for event, object := range map[apiwatch.EventType]string{
		apiwatch.Added: `{"metadata":{"namespace":"team-a","name":"db","resourceVersion":"7"},"spec":{}}`, apiwatch.Bookmark: `{"metadata":{"resourceVersion":"8","annotations":{"k8s.io/initial-events-end":"true"}}}`,
	} {
		seen, err := w.readEvent(event, []byte(object))
		require.NoError(t, err)
		m, err := meta.Accessor(seen)
		require.NoError(t, err)
		want := &metav1.ObjectMeta{Namespace: "team-a", Name: "db", ResourceVersion: "7"}
		if event == apiwatch.Bookmark {
			want = &metav1.ObjectMeta{ResourceVersion: "8", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
		}
		assert.Equal(t, want, m)
	}
}

func TestWatchIsReplaced(t *testing.T) {
	const bound = `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`
	first, second := newLateWatch(t), newLateWatch(t)
	second.kind.Tally = first.kind.Tally
	gold := controllertest.NewClassKind("golds.example.org", "Gold").NewClass(&metav1.ObjectMeta{Name: "gold"}, nil)
	addClaim(t, first, claimJSON(1, bound))
	second.state.bound.counts = first.end()
	addClaim(t, first, claimJSON(2, bound))
	n, _ := first.counts()
	assert.Equal(t, ClaimCounts{Bound: 1}, n, "We should answer still, and change nothing.")
	assert.EqualValues(t, 1, second.kind.BoundClaims(gold), "We should count its claims until the next watch has.")
	seen, err := second.read(claimJSON(1, bound))
	require.NoError(t, err)
	second.Replace([]*claimSeen{seen})
	assert.EqualValues(t, 1, second.kind.BoundClaims(gold), "We should count no claim twice.")
	second.withdraw()
	assert.Zero(t, second.kind.BoundClaims(gold), "We should count no claim that is watched no more.")
	second.own(func(*claimState) { assert.Fail(t, "We should change nothing any more.") })
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
		"NoItems":      {reason: "We should take a list of nothing.", answer: `{"items":null,"metadata":{"resourceVersion":"7"}}`, page: metav1.ListMeta{ResourceVersion: "7"}},
		"OtherItems":   {reason: "We should skip items that are no list.", answer: `{"items":{"a":1},"metadata":{"resourceVersion":"7"}}`, page: metav1.ListMeta{ResourceVersion: "7"}},
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
