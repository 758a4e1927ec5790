package compare

import (
	"context"
	"fmt"

	"github.com/classbind/classbind/e2e/load"
)

// warmRounds are not counted.
const warmRounds = 4

// measureCreates of all kinds in turn, in each round in another order. All claims have to be answered with a class if somebody is asked.
func (w *world) measureCreates(ctx context.Context, by string, clients int) error {
	var sorts []*load.Sort
	for _, c := range w.all() {
		sorts = append(sorts, &load.Sort{Name: c.name, Prepare: func(names string) func(context.Context, int) error {
			bodies := make([][]byte, load.Turn)
			for i := range bodies {
				bodies[i] = claim(c.kind, fmt.Sprintf("%s-%d", names, i), fmt.Sprint("pool-", i%pools))
			}
			return func(ctx context.Context, i int) error {
				_, err := w.createClaim(ctx, c, bodies[i])
				return err
			}
		}})
	}
	if err := load.TakeTurns(ctx, clients, w.settings.Rounds, warmRounds, sorts...); err != nil {
		return err
	}
	var quantiles, ratios []string
	for _, s := range sorts {
		quantiles = append(quantiles, fmt.Sprintf("%.2f, %.1f", s.Millis(.5), s.Millis(.99)))
		// Of the p50 of a turn to that of the baseline in the same round, the median.
		ratio := load.Ratio(s.P50, sorts[0].P50, func(p50 float64) float64 { return p50 })
		ratios = append(ratios, fmt.Sprintf("%.2f", ratio))
	}
	// Milliseconds of another machine or load would contradict those of docs/performance.md.
	_, _ = fmt.Fprint(w.settings.Progress, line(append([]string{"create, " + by + ": p50 and p99 in ms"}, quantiles...)))
	w.row("create, "+by+": p50 as a multiple of the baseline", "creates.go", ratios)
	return nil
}
