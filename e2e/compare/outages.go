package compare

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/load"
)

// perSecond claims are created while a replica is killed.
const perSecond = 50

// outage is what became of claims while a replica was killed and started again.
type outage struct {
	failed, unbound int
	// lasted from the kill to the last claim that failed.
	lasted time.Duration
	// restarted is how long the replica took from the kill until it was ready.
	restarted time.Duration
}

// measureOutages with so many replicas, one of which is killed.
func (w *world) measureOutages(ctx context.Context, replicas int) error {
	return w.each(ctx, func(ctx context.Context, c *contender) (err error) {
		if c.server == nil {
			return nil
		}
		o := &c.outages[replicas-1]
		*o, err = w.restartUnderLoad(ctx, c)
		w.say("  kill, replicas %d: %s: %d failed until %s, %d without a class, ready after %s",
			replicas, c.name, o.failed, o.lasted, o.unbound, o.restarted)
		return err
	})
}

func (w *world) restartUnderLoad(ctx context.Context, c *contender) (o outage, err error) {
	claims, err := client.New(w.Config, client.Options{})
	if err != nil {
		return o, err
	}
	l := load.Start(ctx, load.Options{
		Client: claims, Kinds: []schema.GroupVersionKind{{Group: group, Version: version, Kind: c.kind}},
		Namespace: ofRestarts, Spec: spec("pool-1"), PerSecond: perSecond,
	})
	err = l.Next(ctx, perSecond) // claims: a second of a quiet load.
	l.Mark()
	begin := time.Now()
	if err == nil {
		err = c.server.restart(ctx)
	}
	o.restarted = time.Since(begin)
	if err == nil {
		err = l.Next(ctx, 2*perSecond)
	}
	r, stopErr := l.Stop(ctx)
	if err == nil {
		err = stopErr
	}
	o.failed, o.unbound, o.lasted = r.Failures, r.Unbound, r.LastFailure()
	return o, err
}
