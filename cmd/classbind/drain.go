package main

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// drain lets a replica end without losing a request. For a while after it is
// told to, it is not ready and goes on answering, since the API servers hear of
// it later; and each answer closes its connection, so that in the end none is in
// use on which a request could be on its way.
type drain struct {
	// begun ends when the drain begins, and over when it is over.
	begun, over context.Context
}

// newDrain begins when the context ends, and takes so long.
func newDrain(ctx context.Context, duration time.Duration) *drain {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(duration, end) })
	return &drain{begun: ctx, over: over}
}

func (d *drain) ready(*http.Request) error {
	if d.begun.Err() != nil {
		return errors.New("this replica is about to end")
	}
	return nil
}

func (d *drain) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.begun.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
