package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/classbind/classbind/api/v1beta1"
)

// errTooManyBodies says that other reviews hold all the memory for bodies.
var errTooManyBodies = errors.New("too many large reviews are being read; try again in a moment")

// reservation is what one review has taken of the budget; a nil budget limits nothing.
type reservation struct {
	ctx    context.Context
	budget *semaphore.Weighted
	bytes  int64
}

// grow reserves total bytes beyond the free ones. It may wait for other reviews,
// until the deadline.
func (r *reservation) grow(total int) error {
	more := int64(total) - r.bytes
	if r.budget == nil || more <= 0 {
		return nil
	}
	ctx, cancel := WithDeadline(r.ctx)
	defer cancel()
	if r.budget.Acquire(ctx, more) != nil {
		return errTooManyBodies
	}
	r.bytes += more
	return nil
}

func (r *reservation) release() {
	if r.bytes > 0 {
		r.budget.Release(r.bytes)
	}
}

// read returns the body, or an error at the deadline. The server's own ReadTimeout
// would start when a connection opens, and a client may open one long before it
// sends anything.
func read(w http.ResponseWriter, r *http.Request, reserved *reservation) ([]byte, error) {
	// A deadline set beforehand, or a read in several pieces, would wake the goroutine
	// of an HTTP/2 connection for every request.
	ended := make(chan struct{})
	timer := time.AfterFunc(deadline, func() {
		defer close(ended)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // Only the writer of a test has no deadlines.
	})
	body, err := readBody(r, reserved)
	if !timer.Stop() {
		<-ended // The writer must not be used after the answer.
	}
	switch {
	case err == nil, errors.Is(err, errTooManyBodies):
		return body, err
	case errors.Is(err, errTooLarge):
		return nil, &badRequest{
			http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is larger than %d bytes", v1beta1.MaxReviewBytes),
		}
	}
	return nil, malformed("cannot read the request: %v", err)
}

var errTooLarge = errors.New("too large")

// freeBytes is how many bytes of a body do not count. The streams of an HTTP/2
// connection share what one HTTP/1.1 connection has.
func freeBytes(r *http.Request) int {
	if r.ProtoMajor == 2 {
		return v1beta1.FreeReviewBytes / v1beta1.MaxStreams
	}
	return v1beta1.FreeReviewBytes
}

// readBody reserves and allocates memory only as the body arrives.
func readBody(r *http.Request, reserved *reservation) ([]byte, error) {
	const slack = 512 // room for the read that finds the end
	if r.ContentLength > v1beta1.MaxReviewBytes {
		return nil, errTooLarge
	}
	free := freeBytes(r)
	body := make([]byte, 0, min(max(int(r.ContentLength), 0)+slack, free))
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > v1beta1.MaxReviewBytes:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, err
		case len(body) == cap(body):
			size := min(2*cap(body), v1beta1.MaxReviewBytes+slack)
			if r.ContentLength > 0 {
				size = min(size, max(int(r.ContentLength), len(body))+slack)
			}
			if err := reserved.grow(size - free); err != nil {
				return nil, err
			}
			body = slices.Grow(body, size-len(body))
		}
	}
}
