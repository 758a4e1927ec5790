package bench

import (
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
)

func TestContended(t *testing.T) {
	sample := func(waits int64, waited time.Duration, functions ...string) *profile.Sample {
		s := &profile.Sample{Value: []int64{waits, int64(waited)}}
		for _, f := range functions {
			s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: f}}}})
		}
		return s
	}
	p := &profile.Profile{Sample: []*profile.Sample{
		sample(3, time.Millisecond, "sync.(*Mutex).Unlock", "log/slog.(*commonHandler).handle", "github.com/classbind/classbind/webhook.logDecision", "net/http.serve"),
		sample(1, time.Millisecond, "internal/sync.(*Mutex).Unlock", "sync.(*Mutex).Unlock", "log/slog.(*commonHandler).handle", "github.com/classbind/classbind/webhook.other"),
		sample(2, 5*time.Millisecond, "sync.(*RWMutex).RUnlock", "github.com/classbind/classbind/selector.(*Inventory).Snapshot"),
		sample(4, 4*time.Millisecond, "sync.(*Mutex).Unlock", "main.(*drain).handler.func1"),
		sample(5, 3*time.Millisecond, "sync.(*Mutex).Unlock", "net/http.(*http2pipe).Write"),
		sample(6, time.Microsecond, "runtime.unlock", "runtime.(*mheap).alloc", "github.com/classbind/classbind/webhook.(*Binder).Review"),
		sample(7, time.Nanosecond),
	}}
	assert.Equal(t, []Lock{
		{"github.com/classbind/classbind/selector.(*Inventory).Snapshot", classbinds, 2, 5},
		{"main.(*drain).handler.func1", classbinds, 4, 4},
		{"net/http.(*http2pipe).Write", others, 5, 3},
		{"log/slog.(*commonHandler).handle", called, 4, 2},
		{"runtime.(*mheap).alloc", others, 6, .001},
		{"(unknown)", others, 7, .000001},
	}, contended(p), "We should tell our own locks from those of whom we call, and those from others.")
	l := &Locks{Contended: contended(p)}
	assert.EqualValues(t, 6, l.waits(classbinds))
	assert.EqualValues(t, 4, l.waits(called))
}
