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

var (
	// guardLimits are for the reviews that ask the API server about default classes. A key is that of the classes of one kind and
	// namespace.
	guardLimits = fair.Limits{
		Running: v1beta1.MaxGuardReviews, RunningOfKey: v1beta1.MaxGuardReviewsOfNamespace,
		Waiting: v1beta1.MaxWaitingGuardReviews, WaitingOfKey: v1beta1.MaxWaitingGuardReviewsOfNamespace,
	}
	// decisionLimits are for the decisions that take much CPU. A key is a namespace of claims.
	decisionLimits = fair.Limits{
		Running: v1beta1.MaxCostlyDecisions, RunningOfKey: v1beta1.MaxCostlyDecisionsOfNamespace,
		Waiting: v1beta1.MaxWaitingCostlyDecisions, WaitingOfKey: v1beta1.MaxWaitingCostlyDecisionsOfNamespace,
		Rest: v1beta1.CostlyDecisionRest, MaxRest: v1beta1.MaxCostlyDecisionRest,
	}
)

// CostlyDecisions returns what a Decider needs to limit the decisions that take much CPU. Late binding needs no rest of a namespace:
// namespaces take turns there already, and a worker that waits until one has rested would bind no other's claims.
func CostlyDecisions(rest bool) func(ctx context.Context, namespace string) (done func(), err error) {
	limits := decisionLimits
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
