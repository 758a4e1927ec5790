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
		"EmptyRequirements": {
			"We should not put thousands of errors together.",
			`{"classSelector":{"matchExpressions":[` + repeated(`{"key":"","operator":""}`, 5000) + `]}}`, 8,
		},
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
			assert.Less(t, w.state.waiting.weight, 3)
		})
	}
}

// largeClaims serves lists and watches of claims of 1.5 MiB, without end.
func largeClaims(claims int, streams bool) http.HandlerFunc {
	object := fmt.Sprintf(`{"apiVersion":"example.org/v1","kind":"Claim","metadata":{"namespace":"team-a","uid":"%%d","name":"large-%%[1]d",`+
		`"resourceVersion":"1"},"spec":{"classSelector":{},"other":[%s]}}`, repeated(`{"a":0}`, 190_000))
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
		`{"classSelector":{"matchExpressions":[{"key":"a","operator":"In","values":[""]},{"key":"a","operator":"Exists"},{"key":"example.org/b",` +
			`"operator":"DoesNotExist"}]}}`,
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
	object, err := w.kind.Reader.DecodeValid(raw)
	require.NoError(t, err)
	want := w.kind.Reader.Read("team-a", "x", object)
	require.Empty(t, want.Problems)
	ask, waits := w.ask(raw, &claimSeen{})
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
	return fmt.Sprintf(`{"classSelector":{"matchExpressions":[{"key":"only-%06d","operator":"In","values":[%s]}]}}`, n, repeated(
		`"`+strings.Repeat("x", 60)+`"`, 1+bytes/61,
	))
}

// TestRoom has namespaces share the room, and ask for more than there is.
func TestRoom(t *testing.T) {
	fill := func(w *claimWatch, namespace string, from, n, bytes int) {
		for i := range n {
			addClaim(t, w, claimJSON(from+i, selecting(from+i, bytes), namespace))
		}
	}
	check := func(w *claimWatch) (held map[string]int) {
		t.Helper()
		s, weight, selected := &w.state.waiting, 0, 0
		held = map[string]int{}
		for name, n := range s.namespaces {
			of := 0
			for _, c := range n.claims {
				of += c.weight()
			}
			assert.Equal(t, of, n.weight)
			if weight += of; n.counts() {
				selected += len(n.claims)
			}
			held[name] = len(n.claims)
		}
		assert.Equal(t, selected, s.selected, "We should count the claims that may be bound.")
		assert.Equal(t, weight, s.weight)
		assert.LessOrEqual(t, s.weight, s.limit, "We should hold no more than there is room.")
		return held
	}
	newWatch := func() *claimWatch {
		w := newLateWatch(t)
		w.state.waiting.limit = 1000
		return w
	}
	t.Run("OneAuthor", func(t *testing.T) {
		w := newWatch()
		fill(w, "evil", 0, 2000, 20)
		fill(w, "honest", 10_000, 20, 20)
		assert.Equal(t, map[string]int{"evil": 980, "honest": 20}, check(w), "We should have room for others.")
		assert.Equal(t, 1020, w.state.waiting.left, "We should know how many are not held.")
		fill(w, "honest", 20_000, 2000, 20)
		assert.Equal(t, map[string]int{"evil": 500, "honest": 500}, check(w), "We should share it.")
	})
	t.Run("ManyNamespaces", func(t *testing.T) {
		w := newWatch()
		for i := range 20 {
			fill(w, fmt.Sprint("evil-", i), i*1000, 300, 20)
		}
		fill(w, "honest", 100_000, 20, 20)
		assert.Equal(t, 20, check(w)["honest"], "We should have those give up some that have the most.")
		for i := range 20 {
			fill(w, fmt.Sprint("evil-", i), 200_000+i*1000, 100, 20)
		}
		assert.Equal(t, 20, check(w)["honest"], "We should not take from those that have little.")
	})
	t.Run("NotSelected", func(t *testing.T) {
		w := newWatch()
		w.state.waiting.selects = namespacesOf(t, v1beta1.LabelSelector{MatchLabels: map[string]v1beta1.LabelValue{"team": "a"}})
		fill(w, "unknown", 0, 10, 20)
		fill(w, "kube-system", 100, 10, 20)
		for _, selects := range []bool{false, true} {
			w.checkNamespaces(true, func(string) (bool, error) { return selects, nil })
			check(w)
			assert.Equal(t, map[bool]int{true: 10}[selects], w.state.waiting.selected)
		}
		assert.Len(t, w.state.waiting.takeDue(100), 10, "We should look at the claims of a namespace that is selected later.")
	})
	t.Run("Gone", func(t *testing.T) {
		w := newWatch()
		fill(w, "evil", 0, 2000, 20)
		w.Replace(nil)
		assert.Empty(t, check(w), "We should forget what is gone.")
		assert.Zero(t, w.state.waiting.left+w.state.waiting.due.Len())
	})
	t.Run("Listed", func(t *testing.T) { // A list is read, and held, before it is put.
		w := newWatch()
		var all []*claimSeen
		for i := range 400 {
			seen, err := w.read(claimJSON(i, selecting(i, 2000), fmt.Sprint("team-", i%20)))
			require.NoError(t, err)
			all = append(all, seen)
		}
		texts := 0
		for _, seen := range all {
			texts += len(seen.ask)
		}
		assert.LessOrEqual(t, texts, w.state.waiting.limit*v1beta1.WaitingClaimBytes, "We should hold no more of a list than of claims.")
		w.Replace(all)
		held := 0
		for _, n := range check(w) {
			held += n
		}
		n, _ := w.counts()
		assert.Equal(t, ClaimCounts{Waiting: 400, Left: 400 - held}, n, "We should count all.")
	})
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
		"Waiting": {"We should hold little of a claim that waits.", v1beta1.BindLater, `{"classSelector":{"matchLabels":{"tier":"gold-%d"}}}`, 10_000, 600},
		"Bound": {
			"We should hold little of a claim that is bound.", v1beta1.BindLater,
			`{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold-%d"}}`, 10_000, 600,
		},
		"WaitsForNone": {
			"We should hold nothing of a claim that is not bound later.", v1beta1.Admit, `{"classSelector":{"matchLabels":{"tier":"gold-%d"}}}`,
			10_000, 150,
		},
		"Long": {
			"We should hold a long selector as its text alone.", v1beta1.BindLater,
			`{"classSelector":{"matchExpressions":[{"key":"tier","operator":"In","values":["%d",` + many(`"gold"`, 10_000) + `]}]}}`, 20, 65_000,
		},
		"Malformed": {
			"We should not hold what is wrong with it as long as an author likes.",
			v1beta1.BindLater, `{"classSelector":{"%d` + long + `":{}}}`, 20, 30_000,
		},
		"Dense": {
			"We should hold of no selector more than this.", v1beta1.BindLater,
			`{"classSelector":{"matchExpressions":[{"key":"tier-%d","operator":"Exists"},` + many(`{"key":"a","operator":"Exists"}`, 500) + `]}}`,
			100, 2_500,
		},
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
			assert.Less(
				t, each*int64(tc.claims), int64(max(w.state.waiting.weight, n.Bound, 1000))<<10,
				"We should hold at most a KiB for each claim that it counts as.",
			)
			runtime.KeepAlive(w)
		})
	}
}
