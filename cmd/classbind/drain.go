package main

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// drain lets a replica end without losing a request. When the replica is told to end, it is no longer ready but keeps answering for a
// while, because the API servers notice later. Each answer then closes its connection, so in the end no connection is left that could carry
// another request.
type drain struct {
	// started is cancelled when the drain starts, and finished when it is over.
	started, finished context.Context
}

// newDrain returns a drain that starts when the context ends, and takes a duration.
func newDrain(ctx context.Context, duration time.Duration) *drain {
	finished, finish := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(duration, finish) })
	return &drain{started: ctx, finished: finished}
}

func (d *drain) ready(*http.Request) error {
	if d.started.Err() != nil {
		return errors.New("this replica is about to end")
	}
	return nil
}

func (d *drain) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.started.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
