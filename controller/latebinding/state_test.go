package latebinding

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/classbind/classbind/api/v1beta1"
)

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

// TestClaimMemory measures the memory that a claim takes.
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
