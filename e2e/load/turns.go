package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Turn is how many claims of one sort are created before those of the next: what the machine does otherwise lasts longer, and meets all
// sorts alike.
const Turn = 25

// Sort of claims, whose creation is measured beside that of others.
type Sort struct {
	Name string
	// Prepare the claims of a turn, with names that begin alike, so that encoding them is no part of what is measured. What it returns
	// creates the i-th. Nothing deletes the claims before the control plane ends: that would take as long, beside the turns that follow.
	Prepare func(names string) (create func(ctx context.Context, i int) error)

	// P50 of each turn that counts, in ms.
	P50 []float64
	// Took is what each claim took, sorted in the end.
	Took []time.Duration
}

// Millis that a share of the claims did not exceed.
func (s *Sort) Millis(share float64) float64 { return Milliseconds(Quantile(s.Took, share)) }

// TakeTurns has so many clients create claims of all sorts, so many turns of each after those that warm up, each time in another order.
func TakeTurns(ctx context.Context, clients, turns, warm int, sorts ...*Sort) error {
	orders := rand.New(rand.NewPCG(1, uint64(clients))) //nolint:gosec // It need not be hard to guess, and a run can be repeated.
	for turn := range warm + turns {
		for n, i := range orders.Perm(len(sorts)) {
			s := sorts[i]
			create, took := s.Prepare(fmt.Sprintf("orders-%d-%d-%d", clients, turn, n)), make([]time.Duration, Turn)
			err := InParallel(ctx, clients, Turn, func(ctx context.Context, i int) error {
				begin := time.Now()
				err := create(ctx, i)
				took[i] = time.Since(begin)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			if slices.Sort(took); turn >= warm {
				s.P50, s.Took = append(s.P50, Milliseconds(Quantile(took, .5))), append(s.Took, took...)
			}
		}
	}
	for _, s := range sorts {
		slices.Sort(s.Took)
	}
	return nil
}

// InParallel does n things by so many clients.
func InParallel(ctx context.Context, clients, n int, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(clients)
	for i := range n {
		all.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i)
		})
	}
	return all.Wait()
}
