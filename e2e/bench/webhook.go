package bench

import (
	"context"
	"fmt"

	"github.com/classbind/classbind/e2e/load"
)

// measureWebhook drives classbind and a webhook that does nothing in turn, with the same reviews in a closed loop.
func (r *run) measureWebhook(ctx context.Context) error {
	closed := func(t *target) *contender {
		return &contender{name: t.name, drive: func(ctx context.Context) (round, error) { return t.drive(ctx, r.Round, 0) }}
	}
	doNothing, ours := closed(r.doNothing), closed(r.classbind)
	what := fmt.Sprintf("webhook: the same reviews for both; %d classes of %d kinds, %d kinds of claim, %d matches a claim",
		r.classes, r.classKinds, r.claimKinds, r.matches)
	if err := r.compare(ctx, what, doNothing, ours); err != nil {
		return err
	}
	ratio := func(value func(round) float64) float64 { return load.Ratio(ours.rounds, doNothing.rounds, value) }
	r.measureRatio("throughput", ours, doNothing, perSecond)
	r.measureRatio("p99", ours, doNothing, p99Millis)
	r.line("ratios of rounds side by side: requests/s %.3f, p50 %.3f, p99 %.3f, CPU %.3f",
		ratio(perSecond), ratio(p50Millis), ratio(p99Millis), ratio(cpuMicros))
	return nil
}

// measureRatio of the rounds of two contenders, side by side.
func (r *run) measureRatio(name string, of, to *contender, value func(round) float64) {
	r.measure(name, len(of.rounds), func(from, until int) float64 {
		return load.Ratio(of.rounds[from:until], to.rounds[from:until], value)
	})
}
