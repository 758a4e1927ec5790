package compare

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/load"
)

// perSecond claims are created while a replica is killed.
const perSecond = 50

// outage is what a row of outages has.
const outage = ": creates that failed, claims stored without a class, seconds until the last failure"

// measureOutages kills a replica and starts it again, while claims are created.
func (w *world) measureOutages(ctx context.Context, c *contender) (string, error) {
	if c.server == nil {
		return "no process", nil
	}
	claims, err := client.New(w.Config, client.Options{})
	if err != nil {
		return "", err
	}
	l := load.Start(ctx, load.Options{
		Client: claims, Kinds: []schema.GroupVersionKind{{Group: group, Version: version, Kind: c.kind}},
		Namespace: ofRestarts, Spec: spec("pool-1"), PerSecond: perSecond,
	})
	err = l.Next(ctx, perSecond) // claims: a second of a quiet load.
	l.Mark()
	if err == nil {
		err = c.server.restart(ctx)
	}
	if err == nil {
		err = l.Next(ctx, 2*perSecond)
	}
	r, stopErr := l.Stop(ctx)
	return fmt.Sprintf("%d, %d, %.1f", r.Failures, r.Unbound, r.LastFailure().Seconds()), cmp.Or(err, stopErr)
}
