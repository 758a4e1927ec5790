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

	"github.com/classbind/classbind/api/v1alpha1"
)

// errManyBodies says that others hold the memory for reviews.
var errManyBodies = errors.New("too many large reviews are being read; try again in a moment")

// Bodies of the reviews that a replica reads and answers. What they hold beyond
// the free bytes of each is limited, so that the usual review asks nobody. What
// counts is what has arrived, and not what a header announces.
type Bodies struct {
	bytes *semaphore.Weighted
}

// NewBodies that hold so many bytes at most.
func NewBodies(most int64) *Bodies { return &Bodies{semaphore.NewWeighted(most)} }

// held is what one review holds of them.
type held struct {
	ctx    context.Context
	bodies *Bodies
	bytes  int64
}

// grow to so many bytes beyond the free ones, which may have to wait for other reviews, until the deadline.
func (h *held) grow(to int) error {
	more := int64(to) - h.bytes
	if h.bodies == nil || more <= 0 {
		return nil
	}
	ctx, cancel := inTime(h.ctx)
	defer cancel()
	if h.bodies.bytes.Acquire(ctx, more) != nil {
		return errManyBodies
	}
	h.bytes += more
	return nil
}

func (h *held) release() {
	if h.bytes > 0 {
		h.bodies.bytes.Release(h.bytes)
	}
}

// read the body, for no longer than the deadline. The server's own ReadTimeout
// would begin when a connection is opened, which a client may do long before it
// has something to send.
func read(w http.ResponseWriter, r *http.Request, held *held) ([]byte, error) {
	// To set the deadline beforehand, or to read in several pieces, has every request
	// wake the goroutine of its connection, of HTTP/2.
	ended := make(chan struct{})
	timer := time.AfterFunc(deadline, func() {
		defer close(ended)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // A writer that knows no deadlines is a test's.
	})
	body, err := readBody(r, held)
	if !timer.Stop() {
		<-ended // The writer is no longer ours when the request has been answered.
	}
	switch {
	case err == nil, errors.Is(err, errManyBodies):
		return body, err
	case errors.Is(err, errTooLarge):
		return nil, &badRequest{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is larger than %d bytes", v1alpha1.MaxReviewBytes)}
	}
	return nil, malformed("cannot read the request: %v", err)
}

var errTooLarge = errors.New("too large")

// freeBytes of a review are not counted. Those of HTTP/2 that one connection has at
// once share what it has in HTTP/1.1.
func freeBytes(r *http.Request) int {
	if r.ProtoMajor == 2 {
		return v1alpha1.FreeReviewBytes / v1alpha1.MaxStreams
	}
	return v1alpha1.FreeReviewBytes
}

// readBody into memory that is set aside as the body comes.
func readBody(r *http.Request, held *held) ([]byte, error) {
	const little = 512 // that is left to read the end
	if r.ContentLength > v1alpha1.MaxReviewBytes {
		return nil, errTooLarge
	}
	free := freeBytes(r)
	body := make([]byte, 0, min(max(int(r.ContentLength), 0)+little, free))
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > v1alpha1.MaxReviewBytes:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, err
		case len(body) == cap(body):
			size := min(2*cap(body), v1alpha1.MaxReviewBytes+little)
			if r.ContentLength > 0 {
				size = min(size, max(int(r.ContentLength), len(body))+little)
			}
			if err := held.grow(size - free); err != nil {
				return nil, err
			}
			body = slices.Grow(body, size-len(body))
		}
	}
}
