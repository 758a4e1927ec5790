package registry

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
)

// Tally returns the tally of a claim kind, which outlives its watches and registrations.
func (r *Registration) Tally(claimKind string) *selector.Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tallies == nil {
		r.tallies = map[string]*selector.Tally{}
	}
	if r.tallies[claimKind] == nil {
		r.tallies[claimKind] = &selector.Tally{}
	}
	return r.tallies[claimKind]
}

// expireInFlight forgets claims in flight until the context ends.
func (r *Registration) expireInFlight(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) {
		_ = loop.Recovered(func() error { // A panic is logged; nothing else can fail.
			r.mu.Lock()
			tallies := slices.Collect(maps.Values(r.tallies))
			r.mu.Unlock()
			for _, t := range tallies {
				t.Expire(time.Now())
			}
			return nil
		})
	}, time.Second)
	return nil
}
