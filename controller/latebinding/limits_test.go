package latebinding

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// repeated returns n texts, separated by commas.
func repeated(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }

// allocated is what f allocates, in bytes.
func allocated(f func()) int64 {
	m := runtime.MemStats{}
	runtime.ReadMemStats(&m)
	before := m.TotalAlloc
	f()
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc - before) //nolint:gosec // It is far from that.
}

// TestPoisonedClaims reads claims that are made to cost each leader as much as possible.
func TestPoisonedClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		spec   string
		times  int64 // its length may be allocated, plus 1 MiB
	}{
		"EmptyRequirements":    {"We should not put thousands of errors together.", `{"classSelector":{"matchExpressions":[` + repeated(`{"key":"","operator":""}`, 5000) + `]}}`, 8},
		"NoRequirements":       {"We should not put thousands of errors together.", `{"classSelector":{"matchExpressions":[` + repeated(`{}`, 4000) + `]}}`, 8},
		"LongError":            {"We should not hold an error as long as an author likes.", `{"classSelector":{"` + strings.Repeat("x", 1<<20) + `":{}}}`, 8},
		"LargeElsewhere":       {"We should not decode what we do not ask for.", `{"other":[` + repeated(`{"a":0}`, 190_000) + `]}`, 0},
		"LargeStatusElsewhere": {"We should not decode what we do not ask for.", `{"resource":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLateWatch(t)
			raw := claimJSON(1, tc.spec)
			got := allocated(func() { addClaim(t, w, raw) })
			t.Logf("%d KiB allocated for %d KiB", got>>10, len(raw)>>10)
			assert.Less(t, got, tc.times*int64(len(raw))+1<<20, tc.reason)
			assert.Less(t, w.state.room.used, int64(2*v1beta1.MaxMessageBytes+groupBytes))
		})
	}
}

// largeClaims serves lists and watches of claims of 1.5 MiB, without end.
func largeClaims(claims int, streams bool) http.HandlerFunc {
	object := fmt.Sprintf(`{"apiVersion":"example.org/v1","kind":"Claim","metadata":{"namespace":"team-a","uid":"%%d","name":"large-%%[1]d","resourceVersion":"1"},"spec":{"classSelector":{},"other":[%s]}}`, repeated(`{"a":0}`, 190_000))
	head, tail, _ := strings.Cut(object, `%d","name":"large-%[1]d`)
	write := func(w io.Writer, before string, uid int, after string) {
		_, _ = fmt.Fprintf(w, `%s%s%d","name":"large-%[3]d`, before, head, uid)
		_, _ = io.WriteString(w, tail)
		_, _ = io.WriteString(w, after)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case q.Get("watch") != "" && !streams:
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":422}`, http.StatusUnprocessableEntity)
		case q.Get("watch") != "":
			for i := range claims {
				write(w, `{"type":"ADDED","object":`, i, "}\n")
			}
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, `{"items":[`)
			for i := range claims {
				write(w, strings.Repeat(",", min(i, 1)), i, "")
			}
			_, _ = io.WriteString(w, `],"metadata":{"resourceVersion":"1"}}`)
		}
	}
}

// TestLargeClaims checks that they are held one at a time, listed or watched.
func TestLargeClaims(t *testing.T) {
	const claims = 12 // 18 MiB, which the race detector makes slow
	for name, streams := range map[string]bool{"Pages": false, "Streamed": true} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(largeClaims(claims, streams))
			t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
			client, err := NewClient(&rest.Config{Host: s.URL, QPS: -1})
			require.NoError(t, err)
			w := newLateWatch(t)
			before := heap()
			got := allocated(func() {
				w.start(client, func(error) {})
				eventually(t, "We should see all claims.", func(c *assert.CollectT) {
					n, _ := w.counts()
					assert.Equal(c, claims, n.Waiting)
				})
			})
			t.Logf("%d MiB allocated for %d MiB", got>>20, claims*3/2)
			assert.Less(t, got, int64(4*claims*3/2)<<20, "We should allocate no more than a few times what is sent.")
			assert.Less(t, heap()-before, int64(6<<20), "We should hold little of what is sent.")
		})
	}
}

func TestSelectorsAsText(t *testing.T) {
	for _, spec := range []string{
		`{}`, `{"classSelector":null}`, `{"classSelector":{}}`,
		`{"classSelector":{"matchLabels":{"tier":"gold","in":"notin","empty":""}}}`,
		`{"classSelector":{"matchExpressions":[{"key":"in","operator":"In","values":["","in","exists"]},{"key":"notin","operator":"NotIn","values":[""]}]}}`,
		`{"classSelector":{"matchExpressions":[{"key":"a","operator":"In","values":[""]},{"key":"a","operator":"Exists"},{"key":"example.org/b","operator":"DoesNotExist"}]}}`,
		`{"classSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"NotIn","values":["x","y","x"]}]}}`,
	} {
		checkText(t, claimJSON(1, spec))
	}
	for _, text := range []string{"a", "!a", "a=b", "a==b", "a!=b", "a in (x,y)", "a in ()", "a notin (x,)", "a>5,a<7", "a=", "in in (in)", "a,b,!c,d!=e"} {
		checkText(t, bytes.Replace(claimJSON(1, `{}`), []byte(`"note"`), fmt.Appendf(nil, `%q:%q,"note"`, v1beta1.ClassSelectorAnnotation, text), 1))
	}
}

func checkText(t *testing.T, raw []byte) {
	t.Helper()
	w := newLateWatch(t)
	object, err := w.kind.DecodeValid(raw)
	require.NoError(t, err)
	want := w.kind.Read("team-a", "x", object)
	require.Empty(t, want.Problems)
	ask, waits := judge(w.kind, raw, &claimSeen{})
	require.True(t, waits)
	got, err := ask.Claim("team-a", "x")
	require.NoError(t, err)
	requirements := func(s labels.Selector) (all []any) {
		if s == nil {
			return []any{"none"}
		}
		of, _ := s.Requirements()
		for _, r := range of {
			all = append(all, r.Key(), r.Operator(), r.Values())
		}
		return all
	}
	assert.Equal(t, requirements(want.Selector), requirements(got.Selector), "We should read %q as it was meant.", ask)
}

// selecting returns a spec whose selector no other claim has, of at least so many bytes.
func selecting(n, bytes int) string {
	return fmt.Sprintf(`{"classSelector":{"matchExpressions":[{"key":"only-%06d","operator":"In","values":[%s]}]}}`, n, repeated(`"`+strings.Repeat("x", 60)+`"`, 1+bytes/61))
}

func TestGroupCost(t *testing.T) {
	for _, long := range []int{1, 200, 1000, 5000} {
		t.Run(fmt.Sprint(long), func(t *testing.T) {
			claims := int64(5<<20) / groupCost(claim.Ask(strings.Repeat("x", long))) // Many, so that nothing else counts.
			fill := func(spec func(i int) string) (bytes, counted int64) {
				w := newLateWatch(t)
				before := heap()
				for i := range int(claims) {
					addClaim(t, w, claimJSON(i, spec(i), fmt.Sprint("team-", i%10)))
				}
				bytes = heap() - before
				counted = w.state.room.used
				runtime.KeepAlive(w)
				return bytes, counted
			}
			alone, _ := fill(func(int) string { return selecting(0, long) })
			apart, counted := fill(func(i int) string { return selecting(i, long) })
			takes := (apart - alone) / claims
			t.Logf("%d bytes for a claim, %d for a selector, which counts for %d", alone/claims, takes, counted/claims)
			assert.GreaterOrEqual(t, counted/claims, takes, "We should not count less than a selector takes.")
			assert.LessOrEqual(t, counted/claims, 2*takes, "We should not count twice what it takes.")
			assert.Less(t, alone/claims, int64(500), "We should hold little of a claim.")
		})
	}
}

// TestRoom has namespaces share the room, and ask for more than there is.
func TestRoom(t *testing.T) {
	const most = 1 << 20
	fill := func(w *claimWatch, namespace string, from, n, bytes int) {
		for i := range n {
			addClaim(t, w, claimJSON(from+i, selecting(from+i, bytes), namespace))
		}
	}
	check := func(w *claimWatch) (held map[string]int64) {
		t.Helper()
		held = map[string]int64{}
		sum, selected := int64(0), 0
		for name, n := range w.state.room.namespaces {
			held[name] = n.bytes
			of := int64(0)
			claims := len(n.overflow.claims)
			for ask, g := range n.groups {
				of += groupCost(ask)
				claims += len(g.claims)
			}
			assert.Equal(t, of, n.bytes)
			assert.Equal(t, n.waiting, claims, "We should lose no claim.")
			assert.LessOrEqual(t, n.bytes, w.state.room.limit/namespaceShare, "We should give no namespace more than its share.")
			sum += of
			if n.selected || !n.checked {
				selected += n.waiting
			}
		}
		assert.Equal(t, selected, w.state.selected, "We should count the claims that may be bound.")
		assert.Equal(t, sum, w.state.room.used)
		assert.LessOrEqual(t, w.state.room.used, w.state.room.limit, "We should hold no more than there is room.")
		return held
	}
	newWatch := func() *claimWatch {
		w := newLateWatch(t)
		w.state.resize(most)
		return w
	}
	t.Run("OneAuthor", func(t *testing.T) {
		w := newWatch()
		fill(w, "evil", 0, 2000, 2000)
		assert.Greater(t, check(w)["evil"], int64(most/namespaceShare*9/10), "We should use the share.")
		fill(w, "honest", 10_000, 20, 20)
		assert.Len(t, check(w), 2)
		assert.Len(t, w.state.room.namespaces["honest"].groups, 20, "We should hold the selectors of others.")
	})
	t.Run("ManyNamespaces", func(t *testing.T) {
		w := newWatch()
		for i := range 20 {
			fill(w, fmt.Sprint("evil-", i), i*1000, 300, 2000)
		}
		fill(w, "honest", 100_000, 20, 20)
		check(w)
		assert.Len(t, w.state.room.namespaces["honest"].groups, 20, "We should have those give up some that have the most.")
		for i := range 20 {
			fill(w, fmt.Sprint("evil-", i), 200_000+i*1000, 100, 2000)
		}
		check(w)
		assert.Len(t, w.state.room.namespaces["honest"].groups, 20, "We should not take from those that have little.")
	})
	t.Run("Less", func(t *testing.T) {
		w := newWatch()
		fill(w, "evil", 0, 300, 2000)
		fill(w, "honest", 10_000, 20, 20)
		w.state.resize(most / 8)
		check(w)
		assert.Len(t, w.state.room.namespaces["honest"].groups, 20)
	})
	t.Run("NotSelected", func(t *testing.T) {
		w := newWatch()
		w.state.room.selects = namespacesOf(t, v1beta1.NamespaceSelector{MatchLabels: map[string]v1beta1.LabelValue{"team": "a"}})
		fill(w, "unknown", 0, 10, 20)
		fill(w, "kube-system", 100, 10, 20)
		assert.Len(t, w.state.room.namespaces["unknown"].groups, 10, "We should hold selectors until we know.")
		w.checkNamespaces(true, func(string) (bool, error) { return false, nil })
		assert.Equal(t, map[string]int64{"unknown": 0, "kube-system": 0}, check(w), "We should hold no selector that we do not bind by.")
		w.checkNamespaces(true, func(string) (bool, error) { return true, nil })
		assert.Len(t, w.due(t.Context(), selector.NewView(w.kind, nil)), 10, "We should read the claims of a namespace that is selected later.")
	})
	t.Run("Gone", func(t *testing.T) {
		w := newWatch()
		fill(w, "evil", 0, 500, 2000)
		w.Replace(nil)
		assert.Empty(t, check(w), "We should forget what is gone.")
		assert.Zero(t, w.state.room.used)
	})
	t.Run("ShrunkOnTheWayIn", func(t *testing.T) { // A list is read before it is put.
		w := newWatch()
		var all []*claimSeen
		for i := range 400 {
			seen, err := w.read(claimJSON(i, selecting(i, 2000), fmt.Sprint("team-", i%20)))
			require.NoError(t, err)
			all = append(all, seen)
		}
		w.state.resize(most / 4)
		w.Replace(all)
		check(w)
		assert.Len(t, w.state.waiting, 400)
	})
}

func TestLines(t *testing.T) {
	w := newLateWatch(t)
	addClaim(t, w, claimJSON(0, wantsGold))
	w.state.resize(4 * groupCost("=tier=gold")) // The other selector goes to overflow.
	for i := range 10_000 {
		addClaim(t, w, claimJSON(i+1, selecting(i, 20)))
		addClaim(t, w, bytes.Replace(claimJSON(i+1, wantsGold), []byte("1234567"), []byte("7654321"), 1))
		w.Remove(&claimSeen{seenVersion: seenVersion{uid: uidOf(i + 1)}})
	}
	for l, line := range w.state.room.namespaces["team-a"].lines {
		assert.LessOrEqual(t, len(line), 24, "We should not hold claims that are gone, in line %d.", l)
	}
	assert.Len(t, w.state.waiting, 1)
}

// heap is what is held, in bytes, once the collector finds nothing more that others have left.
func heap() int64 {
	m := runtime.MemStats{}
	for held := uint64(math.MaxUint64); ; held = m.HeapAlloc {
		runtime.GC()
		runtime.ReadMemStats(&m)
		if m.HeapAlloc >= held {
			return int64(m.HeapAlloc) //nolint:gosec // It is far from that.
		}
	}
}

func TestClaimMemory(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	many := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	for name, tc := range map[string]struct {
		reason string
		later  v1beta1.WhenUnmatched
		spec   string // with %d for a number
		claims int
		most   int64
	}{
		"Waiting":      {"We should hold little of a claim that waits.", v1beta1.BindLater, `{"classSelector":{"matchLabels":{"tier":"gold-%d"}}}`, 10_000, 600},
		"Bound":        {"We should hold little of a claim that is bound.", v1beta1.BindLater, `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold-%d"}}`, 10_000, 600},
		"WaitsForNone": {"We should hold nothing of a claim that is not bound later.", v1beta1.Admit, `{"classSelector":{"matchLabels":{"tier":"gold-%d"}}}`, 10_000, 150},
		"Long":         {"We should hold a long selector as its text alone.", v1beta1.BindLater, `{"classSelector":{"matchExpressions":[{"key":"tier","operator":"In","values":["%d",` + many(`"gold"`, 10_000) + `]}]}}`, 20, 65_000},
		"Malformed":    {"We should not hold what is wrong with it as long as an author likes.", v1beta1.BindLater, `{"classSelector":{"%d` + long + `":{}}}`, 20, 30_000},
		"Dense":        {"We should hold of no selector more than this.", v1beta1.BindLater, `{"classSelector":{"matchExpressions":[{"key":"tier-%d","operator":"Exists"},` + many(`{"key":"a","operator":"Exists"}`, 500) + `]}}`, 100, 2_500},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLateWatch(t, func(k *v1beta1.ClaimKind) {
				k.Spec.Choice.Strategy, k.Spec.WhenUnmatched = v1beta1.LeastClaims, tc.later
			})
			before := heap()
			for i := range tc.claims {
				addClaim(t, w, claimJSON(i, fmt.Sprintf(tc.spec, i%50), fmt.Sprintf("team-%d", i%10)))
			}
			each := (heap() - before) / int64(tc.claims)
			n, _ := w.counts()
			t.Logf("%d bytes for each of %d", each, n.Bound+n.Waiting)
			assert.Less(t, each, tc.most, tc.reason)
			runtime.KeepAlive(w)
		})
	}
}
