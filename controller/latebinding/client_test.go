package latebinding

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

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
