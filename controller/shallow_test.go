package controller

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// nested returns nested arrays around a value.
func nested(depth int, value string) string {
	return strings.Repeat("[", depth) + value + strings.Repeat("]", depth)
}

func TestShallow(t *testing.T) {
	const most = v1alpha1.MaxDepth
	for name, tc := range map[string]struct{ reason, answer, want string }{
		"Flat":         {"We should leave alone what is not deep.", `{"a":[1,{"b":"c"}],"d":null} `, `{"a":[1,{"b":"c"}],"d":null} `},
		"Deepest":      {"We should leave alone what is as deep as it may be.", nested(most, `1,"a"`), nested(most, `1,"a"`)},
		"Deeper":       {"We should have what is deeper be empty.", nested(most, `1,{"a":1},[],2`), nested(most, `1,{},[],2`)},
		"Deep":         {"We should leave no more of what is much deeper.", `{"a":` + nested(10*most, `{"b":"c"}`) + `,"d":1}`, `{"a":` + nested(most, "") + `,"d":1}`},
		"Texts":        {"We should take no bracket in a text for one.", `{"[{\"[":"\\","]":"\\\"]}"}` + nested(most, `"[[["`), `{"[{\"[":"\\","]":"\\\"]}"}` + nested(most, `"[[["`)},
		"TextsBelow":   {"We should take no bracket in a text for one.", nested(most+1, `"]]]\"]\\",1`) + "2", nested(most+1, "") + "2"},
		"EndsInText":   {"We should pass on what is not JSON.", `not "found`, `not "found`},
		"ClosedTooOft": {"We should pass on what is not JSON.", `]]]{"a":1}`, `]]]{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			for way, from := range map[string]io.Reader{"whole": strings.NewReader(tc.answer), "byte by byte": iotest.DataErrReader(iotest.OneByteReader(strings.NewReader(tc.answer)))} {
				got, err := io.ReadAll(&shallow{ReadCloser: io.NopCloser(from)})
				require.NoError(t, err)
				assert.Equal(t, tc.want, string(got), "%s (%s)", tc.reason, way)
			}
		})
	}
}

// deepest is the depth of the deepest object that the API server takes: it reads it with sigs.k8s.io/json.
const deepest = 10_000

// TestDeepClaims has a claim so deep that a list or an event around it is deeper than
// decoders go.
func TestDeepClaims(t *testing.T) {
	deep := fmt.Sprintf(`{"classSelector":{"matchLabels":{"tier":"gold"}},"other":%s}`, nested(deepest-2, ""))
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

// TestDeepClasses has such a class, of a kind of which more than metadata is read.
func TestDeepClasses(t *testing.T) {
	class := `{"apiVersion":"example.org/v1","kind":"Gold","metadata":{"name":%q,"resourceVersion":"7"},"spec":{"weight":3,"other":%s}}`
	deep, flat := fmt.Sprintf(class, "deep", nested(deepest-2, "")), fmt.Sprintf(class, "flat", "[]")
	client, err := newClassClient(&rest.Config{Host: "http://none", Transport: patches(func(r *http.Request) (*http.Response, error) {
		body := `{"apiVersion":"example.org/v1","kind":"GoldList","metadata":{"resourceVersion":"7"},"items":[` + deep + "," + flat + `]}`
		if r.URL.Query().Get("watch") != "" {
			body = `{"type":"ADDED","object":` + deep + `}` + `{"type":"ADDED","object":` + flat + `}`
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})})
	require.NoError(t, err)
	kind := selector.NewClassKind(&v1alpha1.ClassKind{Spec: v1alpha1.ClassKindSpec{Weight: v1alpha1.Source{Path: ".spec.weight"}}}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	list, err := client.list(t.Context(), kind, "", metav1.ListOptions{})
	require.NoError(t, err, "We should read a list with a deep class in it.")
	all, err := classes(kind, list)
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

// BenchmarkShallow measures what it costs beside decoding.
func BenchmarkShallow(b *testing.B) {
	claim := claimJSON(1, `{"classSelector":{},"other":[`+repeated(`{"a":0,"name":"some text","b":{"c":true}}`, 10_000)+`]}`)
	b.SetBytes(int64(len(claim)))
	for b.Loop() {
		if _, err := io.Copy(io.Discard, &shallow{ReadCloser: io.NopCloser(bytes.NewReader(claim))}); err != nil {
			b.Fatal(err)
		}
	}
}
