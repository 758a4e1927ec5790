package compare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/classbind/classbind/e2e/load"
)

// clientsOfCreates create claims, first one alone and then several at once.
var clientsOfCreates = [2]int{1, 8}

const (
	// turn is how many claims of a kind are created before those of the next: what the machine does otherwise meets all kinds alike.
	turn = 25
	// warmRounds are not counted.
	warmRounds = 4
)

// creates of claims of one kind.
type creates struct {
	took []time.Duration // each, sorted in the end
	p50  []float64       // of each turn, in ms
	// ratio of the p50 of a turn to that of the baseline in the same round, the median.
	ratio float64
}

// measureCreates of all kinds in turn, in each round in another order.
func (w *world) measureCreates(ctx context.Context, i, clients int) error {
	all := w.all()
	orders := rand.New(rand.NewPCG(1, uint64(clients))) //nolint:gosec // A run can be repeated.
	for round := range w.settings.Rounds + warmRounds {
		for _, k := range orders.Perm(len(all)) {
			took, err := w.createTurn(ctx, all[k], clients, fmt.Sprintf("orders-%d-%d", clients, round))
			if err != nil {
				return fmt.Errorf("%s: %w", all[k].name, err)
			}
			if round >= warmRounds {
				slices.Sort(took)
				of := &all[k].creates[i]
				of.took, of.p50 = append(of.took, took...), append(of.p50, load.Milliseconds(load.Quantile(took, .5)))
			}
		}
	}
	for _, c := range all {
		of := &c.creates[i]
		slices.Sort(of.took)
		of.ratio = load.Ratio(of.p50, w.baseline.creates[i].p50, func(p50 float64) float64 { return p50 })
		w.say("  creates, clients %d: %s: %s ms, ratio %.2f", clients, c.name, of.quantiles(), of.ratio)
	}
	return nil
}

func (c *creates) quantile(share float64) float64 {
	return load.Milliseconds(load.Quantile(c.took, share))
}

// createTurn of claims, all of which have to be answered with a class if somebody is asked. They are stored, and stay.
func (w *world) createTurn(ctx context.Context, c *contender, clients int, names string) ([]time.Duration, error) {
	bodies := make([][]byte, turn)
	for i := range bodies {
		bodies[i] = claim(c.kind, fmt.Sprintf("%s-%d", names, i), fmt.Sprint("pool-", i%pools))
	}
	took := make([]time.Duration, turn)
	return took, load.InParallel(ctx, clients, turn, func(ctx context.Context, i int) error {
		begin := time.Now()
		_, err := w.createClaim(ctx, c, bodies[i])
		took[i] = time.Since(begin)
		return err
	})
}
