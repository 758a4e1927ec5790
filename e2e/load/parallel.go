package load

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// InParallel does n things by so many clients.
func InParallel(ctx context.Context, clients, n int, do func(ctx context.Context, i int) error) error {
	next := atomic.Int64{}
	all, ctx := errgroup.WithContext(ctx)
	for range clients {
		all.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}
