package webhook

import (
	"context"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/webhook/onedefault"
)

// collectInterval is the pause between two rounds of collecting Leases.
const collectInterval = 10 * time.Second

// CollectLeases deletes the Leases of seats that no longer have a default class, until the context ends. The leader runs it. The guard does
// not need it: it takes what is no longer used. But a tenant can move a class through any number of partitions, and each leaves a Lease.
func (g *Guard) CollectLeases(ctx context.Context) error {
	recovered.Rounds(ctx, g.collectLeases, collectInterval)
	return nil
}

// collectLeases reads at most MaxLeasesCollected Leases: those whose writes are over, if the seat has no default as far as the snapshot
// shows. The rest is for the next round. What it reads live decides.
func (g *Guard) collectLeases(ctx context.Context) {
	snapshot, used := g.Snapshot(), map[string]bool{}
	if snapshot == nil {
		return
	}
	for _, view := range snapshot {
		for seat := range view.DefaultsBySeat() {
			used[onedefault.LeaseName(seat)] = true
		}
	}
	read, failure := 0, error(nil)
	for _, name := range g.Sightings.Quiet(g.Window) {
		if ctx.Err() != nil || read == v1beta1.MaxLeasesCollected {
			break
		}
		if used[name] {
			continue
		}
		read++
		if err := recovered.Do(func() error { return g.collectLease(ctx, snapshot, name) }); err != nil {
			failure = err
		}
	}
	if failure != nil && ctx.Err() == nil {
		logOf(ctx).Info("Cannot delete some Leases of seats without a default class", "because", failure.Error())
	}
}

// collectLease keeps the Leases of a claim kind whose classes are not all known: a class that is not known cannot be its default, as far as
// the snapshot shows.
func (g *Guard) collectLease(ctx context.Context, snapshot selector.Snapshot, name string) error {
	claimKind := onedefault.ClaimKindOf(name)
	view := snapshot[claimKind]
	if view == nil {
		if k, err := g.ClaimKind(ctx, claimKind); k != nil || err != nil {
			return err
		}
	}
	if view == nil || view.Incomplete() == nil {
		return g.cluster(snapshot).Collect(ctx, name)
	}
	return nil
}
