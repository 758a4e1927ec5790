package webhook

import (
	"context"
	"time"

	"github.com/classbind/classbind/api/v1alpha1"
)

// deadline is shorter than the API server's, so that our answer comes before its
// timeout.
const deadline = v1alpha1.WebhookTimeoutSeconds*time.Second - 500*time.Millisecond

// arrivalKey finds the arrival time of a request in the context of its review.
type arrivalKey struct{}

func withArrival(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, arrivalKey{}, at)
}

// WithDeadline is for calls to others, such as the API server. The context ends at the
// deadline of the request, or of one that arrives now if ctx has none. A review calls
// it just before it asks: most claims are bound from memory and need no timer.
func WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	at, ok := ctx.Value(arrivalKey{}).(time.Time)
	if !ok {
		at = time.Now()
	}
	return context.WithDeadline(ctx, at.Add(deadline))
}
