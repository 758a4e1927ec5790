package webhook

import (
	"context"
	"time"

	"github.com/classbind/classbind/api/v1alpha1"
)

// deadline is shorter than the API server's, so that it gets our answer, and not
// its own timeout.
const deadline = v1alpha1.WebhookTimeoutSeconds*time.Second - 500*time.Millisecond

// arrival is when the request came, in the context of its review.
type arrival struct{}

func arrived(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, arrival{}, at)
}

// inTime is the context for asking somebody else, such as the API server: it ends
// at the deadline of the request, or of one that comes now where none did. A review
// makes it where it asks, since most claims are bound from memory and need no timer.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	at, ok := ctx.Value(arrival{}).(time.Time)
	if !ok {
		at = time.Now()
	}
	return context.WithDeadline(ctx, at.Add(deadline))
}
