package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/recovered"
)

var (
	errTooManyReads  = errors.New("too many claims of its namespace wait for reads of the API server; try again in a moment")
	errTooManyClaims = errors.New("too many claims wait for reads of the API server; try again in a moment")
)

// readKey identifies a read: equal reads have equal keys.
type readKey struct {
	kind *inventory.ClassKind
	// namespaces are separated by commas; empty means all.
	namespaces string
	// selector as text. It is empty for the selector of everything, too.
	selector string
	// defaults says that the default classes are asked for.
	defaults bool

	// related is the resource of the object of this name that is asked for, instead of classes. It is in the namespace, if it has one.
	related keptObjects
	name    string
}

// group is the API group of what is read.
func (k readKey) group() string {
	if k.name != "" {
		return k.related.served.Group
	}
	return k.kind.Resource().Group
}

// String says what is read, after "cannot".
func (k readKey) String() string {
	if k.name != "" {
		return fmt.Sprintf("get an object of %q", k.related.kind.Key())
	}
	return fmt.Sprintf("list the classes of %q", k.kind.Name)
}

// sharedRead is one read of the classes of a kind, or of a related object, for all claims that ask for it.
type sharedRead struct {
	key readKey
	// selector of the key; nil asks for the default classes.
	selector labels.Selector
	// known are the classes that are not read again if they are stored unchanged; it may be nil.
	known *inventory.Classes

	// readers counts the waiting claims of each namespace. stop ends the read, and is nil until it begins. reads.mu guards both.
	readers map[string]int
	stop    context.CancelFunc

	// The rest is set before done is closed. object is nil if there is none.
	done    chan struct{}
	classes *inventory.Classes
	object  *expression.Object
	err     error
}

// reads runs the live reads of a replica, a few at once. One namespace gets only a share of them, and so does one API group: its kinds have
// one API server, which may answer for none of them. Waiting namespaces take turns, and the reads of one begin in the order in which they
// were asked for.
//
// Equal reads are shared, and one runs at a time. Claims that ask meanwhile share the next, because the running one may have begun before
// their class existed. A shared read waits in the queue of each namespace that asks for it, and begins when the first of them has its turn:
// nobody waits longer because others asked, too.
type reads struct {
	read func(context.Context, *sharedRead) (*inventory.Classes, error)

	mu sync.Mutex // guards all below
	// next has the read of each key that has not begun, and busy the one that has.
	next, busy map[readKey]*sharedRead
	waiting    fair.Queue[*sharedRead] // by namespace
	// running reads by the namespace whose turn it was, and by API group.
	running, ofGroup fair.Counts
	claims           fair.Counts // that have asked and not left, by namespace
}

func newReads(read func(context.Context, *sharedRead) (*inventory.Classes, error)) *reads {
	return &reads{read: read, next: map[readKey]*sharedRead{}, busy: map[readKey]*sharedRead{}}
}

// ask queues reads for a claim of a namespace, which must leave them later. known returns what is known of a kind; nil knows nothing.
func (r *reads) ask(
	namespace string, s labels.Selector, known func(*inventory.ClassKind) *inventory.Classes, keys ...readKey,
) ([]*sharedRead, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.claims.Of(namespace) >= v1beta1.MaxClaimsInLiveReadsOfNamespace:
		return nil, errTooManyReads
	case r.claims.All() >= v1beta1.MaxClaimsInLiveReads:
		return nil, errTooManyClaims
	}
	asked := make([]*sharedRead, 0, len(keys))
	full := r.waiting.LenOf(namespace) >= v1beta1.MaxWaitingLiveReads
	for _, k := range keys {
		next := r.next[k]
		if full && (next == nil || next.readers[namespace] == 0) {
			for _, s := range asked {
				r.drop(s, namespace)
			}
			return nil, errTooManyReads
		}
		if next == nil {
			next = &sharedRead{key: k, selector: s, readers: map[string]int{}, done: make(chan struct{})}
			if known != nil {
				next.known = known(k.kind)
			}
			r.next[k] = next
		}
		if next.readers[namespace]++; next.readers[namespace] == 1 {
			r.waiting.Push(namespace, next)
		}
		asked = append(asked, next)
	}
	r.claims.Add(namespace, 1)
	r.begin()
	return asked, nil
}

// wait returns the result of a read.
func (r *reads) wait(ctx context.Context, s *sharedRead) (*inventory.Classes, error) {
	select {
	case <-s.done:
		return s.classes, s.err
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

// leave drops the reads that a claim asked for. A read without readers ends.
func (r *reads) leave(namespace string, asked ...*sharedRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range asked {
		r.drop(s, namespace)
	}
	r.claims.Add(namespace, -1)
}

// drop removes one reader of a namespace. The caller holds mu.
func (r *reads) drop(s *sharedRead, namespace string) {
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
		return r.running.Of(namespace) < v1beta1.MaxLiveReadsOfNamespace &&
			r.busy[s.key] == nil && r.ofGroup.Of(s.key.group()) < v1beta1.MaxLiveReadsOfAPIGroup
	}
	for r.running.All() < v1beta1.MaxLiveReads {
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
		r.ofGroup.Add(s.key.group(), 1)
		// No claim's context: the end of one claim must not end a shared read.
		ctx, stop := context.WithTimeout(context.Background(), v1beta1.WebhookTimeoutSeconds*time.Second)
		s.stop = stop
		go func() { defer recovered.Here(); r.run(ctx, namespace, s) }()
	}
}

func (r *reads) run(ctx context.Context, namespace string, s *sharedRead) {
	s.err = recovered.Do(func() (err error) {
		s.classes, err = r.read(ctx, s)
		return err
	})
	s.stop()
	close(s.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, s.key)
	r.running.Add(namespace, -1)
	r.ofGroup.Add(s.key.group(), -1)
	r.begin() //nolint:contextcheck // The next read has a context of its own.
}
