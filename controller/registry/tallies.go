package registry

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
)

// Tallies has those of all claim kinds.
type Tallies struct {
	mu      sync.Mutex // guards tallies
	tallies map[string]*selector.Tally
}

// Tally returns the tally of a claim kind, which outlives its watches and registrations.
func (t *Tallies) Tally(claimKind string) *selector.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tallies == nil {
		t.tallies = map[string]*selector.Tally{}
	}
	if t.tallies[claimKind] == nil {
		t.tallies[claimKind] = &selector.Tally{}
	}
	return t.tallies[claimKind]
}

// expireInFlight forgets claims in flight until the context ends.
func (t *Tallies) expireInFlight(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) {
		_ = loop.Recovered(func() error { // A panic is logged; nothing else can fail.
			t.mu.Lock()
			tallies := slices.Collect(maps.Values(t.tallies))
			t.mu.Unlock()
			for _, tally := range tallies {
				tally.Expire(time.Now())
			}
			return nil
		})
	}, time.Second)
	return nil
}
