package webhook

import (
	"context"
	"errors"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fair"
)

var (
	// errTooManyDefaults, errTooManyDecisions and errTooManyOfNamespace say that other reviews come first.
	errTooManyDefaults    = errors.New("too many classes are being made default; try again in a moment")
	errTooManyDecisions   = errors.New("too many claims take long to decide on; try again in a moment")
	errTooManyOfNamespace = errors.New("too many claims of this namespace take long to decide on; try again in a moment")
)

// CostlyDecisions returns what a Decider needs to limit the decisions that take much CPU. Late binding needs no rest of a namespace:
// namespaces take turns there already, and a worker that waits until one has rested would bind no other's claims.
func CostlyDecisions(rest bool) func(ctx context.Context, namespace string) (done func(), err error) {
	limits := v1beta1.CostlyDecisions
	if !rest {
		limits.Rest = 0
	}
	limiter := fair.NewLimiter(limits)
	return func(ctx context.Context, namespace string) (func(), error) {
		done, err := limiter.Take(ctx, namespace)
		switch {
		case errors.Is(err, fair.ErrKeyFull):
			return nil, errTooManyOfNamespace
		case err != nil:
			return nil, errTooManyDecisions
		}
		return done, nil
	}
}
