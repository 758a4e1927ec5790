package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/recovered"
)

var (
	errTooManyReads  = errors.New("too many claims of its namespace wait for reads of the API server; try again in a moment")
	errTooManyClaims = errors.New("too many claims wait for reads of the API server; try again in a moment")
)

// readKey identifies the read of an object of a related kind, in a namespace if it has one: equal reads have equal keys.
type readKey struct {
	keptObjects
	namespace, name string
}

// String says what is read, after "cannot".
func (k readKey) String() string { return fmt.Sprintf("get an object of %q", k.kind.Key()) }

// sharedRead is one read of a related object, for all claims that ask for it.
type sharedRead struct {
	key readKey

	// readers counts the waiting claims of each namespace. stop ends the read, and is nil until it begins. reads.mu guards both.
	readers map[string]int
	stop    context.CancelFunc

	// The rest is set before done is closed. object is nil if there is none.
	done   chan struct{}
	object *expression.Object
	err    error
}

// reads runs the live reads of a replica, a few at once. One namespace gets only a share of them, and so does one API group: its kinds have
// one API server, which may answer for none of them. Waiting namespaces take turns, and the reads of one begin in the order in which they
// were asked for.
//
// Equal reads are shared, and one runs at a time. Claims that ask meanwhile share the next, because the running one may have begun before
// their object existed. A shared read waits in the queue of each namespace that asks for it, and begins when the first of them has its
// turn: no caller waits longer because others asked, too.
type reads struct {
	read func(context.Context, readKey) (*expression.Object, error)

	mu sync.Mutex // guards all below
	// next has the read of each key that has not begun, and busy the one that has.
	next, busy map[readKey]*sharedRead
	waiting    fair.Queue[*sharedRead] // by namespace
	// running reads by the namespace whose turn it was, and by API group.
	running, ofGroup fair.Counts
	claims           fair.Counts // that have asked and not left, by namespace
}

func newReads(read func(context.Context, readKey) (*expression.Object, error)) *reads {
	return &reads{read: read, next: map[readKey]*sharedRead{}, busy: map[readKey]*sharedRead{}}
}

// ask queues a read for a claim of a namespace, which must leave it later.
func (r *reads) ask(namespace string, k readKey) (*sharedRead, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.claims.Of(namespace) >= v1beta1.LiveReads.WaitingPerKey:
		return nil, errTooManyReads
	case r.claims.All() >= v1beta1.LiveReads.Waiting:
		return nil, errTooManyClaims
	}
	next := r.next[k]
	if next == nil {
		next = &sharedRead{key: k, readers: map[string]int{}, done: make(chan struct{})}
		r.next[k] = next
	}
	if next.readers[namespace]++; next.readers[namespace] == 1 {
		r.waiting.Push(namespace, next)
	}
	r.claims.Add(namespace, 1)
	r.begin()
	return next, nil
}

// wait returns the result of a read.
func (r *reads) wait(ctx context.Context, s *sharedRead) (*expression.Object, error) {
	select {
	case <-s.done:
		return s.object, s.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	begun := s.stop != nil
	r.mu.Unlock()
	err := context.Cause(ctx)
	if !begun {
		err = fmt.Errorf("other reads of the API server come first: %w", err)
	}
	return nil, fmt.Errorf("cannot %v: %w", s.key, err)
}

// leave drops the read that a claim asked for. A read without readers ends.
func (r *reads) leave(namespace string, s *sharedRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims.Add(namespace, -1)
	if s.readers[namespace]--; s.readers[namespace] == 0 {
		delete(s.readers, namespace)
		if s.stop == nil {
			r.waiting.Remove(namespace, s)
		}
	}
	switch {
	case len(s.readers) > 0:
	case s.stop != nil:
		s.stop()
	default:
		delete(r.next, s.key)
	}
}

// begin starts as many reads as may run at once. The caller holds mu.
func (r *reads) begin() {
	mayBegin := func(namespace string, s *sharedRead) bool {
		return r.running.Of(namespace) < v1beta1.LiveReads.PerKey &&
			r.busy[s.key] == nil && r.ofGroup.Of(s.key.served.Group) < v1beta1.MaxLiveReadsOfAPIGroup
	}
	for r.running.All() < v1beta1.LiveReads.InFlight {
		namespace, s, ok := r.waiting.Pop(mayBegin)
		if !ok {
			return
		}
		for reader := range s.readers {
			r.waiting.Remove(reader, s)
		}
		delete(r.next, s.key)
		r.busy[s.key] = s
		r.running.Add(namespace, 1)
		r.ofGroup.Add(s.key.served.Group, 1)
		// No claim's context: the end of one claim must not end a shared read.
		ctx, stop := context.WithTimeout(context.Background(), v1beta1.WebhookTimeoutSeconds*time.Second)
		s.stop = stop
		go func() { defer recovered.Here(); r.run(ctx, namespace, s) }()
	}
}

func (r *reads) run(ctx context.Context, namespace string, s *sharedRead) {
	s.err = recovered.Do(func() (err error) {
		s.object, err = r.read(ctx, s.key)
		return err
	})
	s.stop()
	close(s.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, s.key)
	r.running.Add(namespace, -1)
	r.ofGroup.Add(s.key.served.Group, -1)
	r.begin() //nolint:contextcheck // The next read has a context of its own.
}
