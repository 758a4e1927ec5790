package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
)

var (
	errTooManyReads  = errors.New("too many claims of its namespace wait for reads of the API server; try again in a moment")
	errTooManyClaims = errors.New("too many claims wait for reads of the API server; try again in a moment")
)

// readKey identifies a read: equal reads have equal keys.
type readKey struct {
	kind *selector.ClassKind
	// namespaces are separated by commas; empty means all.
	namespaces string
	// selector as text. It is empty for the selector of everything, too.
	selector string
	// defaults says that the default classes are asked for.
	defaults bool

	// related is the resource of the related object of this name that is asked for, instead
	// of classes. It is in the namespace, if it has one.
	related relatedResource
	name    string
}

// group is the API group of what is read.
func (k readKey) group() string {
	if k.name != "" {
		return k.related.gvr.Group
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

// sharedRead is one read of the classes of a kind, or of a related object, for all claims
// that ask for it.
type sharedRead struct {
	key readKey
	// selector of the key; nil asks for the default classes.
	selector labels.Selector
	// known are the classes that are not read again if they are stored unchanged; it may be nil.
	known *selector.Classes

	// readers counts the waiting claims of each namespace. stop ends the read, and is
	// nil until it begins. reads.mu guards both.
	readers map[string]int
	stop    context.CancelFunc

	// The rest is set before done is closed. object is nil if there is none.
	done    chan struct{}
	classes *selector.Classes
	object  *expression.Object
	err     error
}

// reads runs the live reads of a replica, a few at once. One namespace gets only a
// share of them, and so does one API group: its kinds have one API server, which may
// answer for none of them. Waiting namespaces take turns, and the reads of one
// begin in the order in which they were asked for.
//
// Equal reads are shared, and one runs at a time. Claims that ask meanwhile share the
// next, because the running one may have begun before their class existed. A shared
// read waits in the queue of each namespace that asks for it, and begins when the first
// of them has its turn: nobody waits longer because others asked, too.
type reads struct {
	read func(context.Context, *sharedRead) (*selector.Classes, error)

	mu sync.Mutex // guards all below
	// next has the read of each key that has not begun, and busy the one that has.
	next, busy map[readKey]*sharedRead
	running    int
	ofGroup    map[string]int // running, by the API group of the class kind
	namespaces map[string]*readQueue
	turns      []*readQueue // those with reads that wait, the next first
	claims     int          // claims that have asked and not left
	claimsOf   map[string]int
}

// readQueue has the reads of one namespace.
type readQueue struct {
	namespace string
	running   int
	waiting   []*sharedRead
}

func newReads(read func(context.Context, *sharedRead) (*selector.Classes, error)) *reads {
	return &reads{
		read: read, next: map[readKey]*sharedRead{}, busy: map[readKey]*sharedRead{},
		ofGroup: map[string]int{}, namespaces: map[string]*readQueue{}, claimsOf: map[string]int{},
	}
}

// ask queues reads for a claim of a namespace, which must leave them later. known returns what
// is known of a kind; nil knows nothing.
func (r *reads) ask(
	namespace string, s labels.Selector, known func(*selector.ClassKind) *selector.Classes, keys ...readKey,
) ([]*sharedRead, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.claimsOf[namespace] >= v1alpha1.MaxClaimsInLiveReadsOfNamespace:
		return nil, errTooManyReads
	case r.claims >= v1alpha1.MaxClaimsInLiveReads:
		return nil, errTooManyClaims
	}
	asked := make([]*sharedRead, 0, len(keys))
	q := r.namespaces[namespace]
	full := q != nil && len(q.waiting) >= v1alpha1.MaxWaitingLiveReads
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
			r.enqueue(next, namespace)
		}
		asked = append(asked, next)
	}
	r.claims++
	r.claimsOf[namespace]++
	r.begin()
	return asked, nil
}

// wait returns the result of a read.
func (r *reads) wait(ctx context.Context, s *sharedRead) (*selector.Classes, error) {
	select {
	case <-s.done:
		return s.classes, s.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	begun := s.stop != nil
	r.mu.Unlock()
	if !begun {
		return nil, fmt.Errorf("cannot %v: other reads of the API server come first: %w", s.key, context.Cause(ctx))
	}
	return nil, fmt.Errorf("cannot %v: %w", s.key, context.Cause(ctx))
}

// leave drops the reads that a claim asked for. A read without readers ends.
func (r *reads) leave(namespace string, asked ...*sharedRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range asked {
		r.drop(s, namespace)
	}
	r.claims--
	if r.claimsOf[namespace]--; r.claimsOf[namespace] == 0 {
		delete(r.claimsOf, namespace)
	}
}

// drop removes one reader of a namespace. The caller holds mu.
func (r *reads) drop(s *sharedRead, namespace string) {
	if s.readers[namespace]--; s.readers[namespace] == 0 {
		delete(s.readers, namespace)
		if s.stop == nil {
			r.dequeue(s, namespace)
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

// enqueue adds a read at the end of a queue. The caller holds mu.
func (r *reads) enqueue(s *sharedRead, namespace string) {
	q := r.namespaces[namespace]
	if q == nil {
		q = &readQueue{namespace: namespace}
		r.namespaces[namespace] = q
	}
	if len(q.waiting) == 0 {
		r.turns = append(r.turns, q)
	}
	q.waiting = append(q.waiting, s)
}

// dequeue removes a read that has not begun. The caller holds mu.
func (r *reads) dequeue(s *sharedRead, namespace string) {
	q := r.namespaces[namespace]
	i := slices.Index(q.waiting, s)
	q.waiting = slices.Delete(q.waiting, i, i+1)
	if len(q.waiting) == 0 {
		r.turns = slices.DeleteFunc(r.turns, func(o *readQueue) bool { return o == q })
	}
	r.forget(q)
}

// forget removes the queue of a namespace without reads. The caller holds mu.
func (r *reads) forget(q *readQueue) {
	if q.running == 0 && len(q.waiting) == 0 {
		delete(r.namespaces, q.namespace)
	}
}

// begin starts as many reads as may run at once. The caller holds mu.
func (r *reads) begin() {
	for r.running < v1alpha1.MaxLiveReads {
		q, s := r.turn()
		if s == nil {
			return
		}
		// The next namespace has its turn, even if this one has more reads.
		r.turns = append(slices.DeleteFunc(r.turns, func(o *readQueue) bool { return o == q }), q)
		for namespace := range s.readers {
			r.dequeue(s, namespace)
		}
		delete(r.next, s.key)
		r.busy[s.key] = s
		r.running++
		r.ofGroup[s.key.group()]++
		q.running++
		r.namespaces[q.namespace] = q
		// No claim's context: the end of one claim must not end a shared read.
		ctx, stop := context.WithTimeout(context.Background(), v1alpha1.WebhookTimeoutSeconds*time.Second)
		s.stop = stop
		go r.run(ctx, q, s)
	}
}

// turn returns the next read that may begin, and the namespace whose turn it is. The caller holds mu.
func (r *reads) turn() (*readQueue, *sharedRead) {
	for _, q := range r.turns {
		if q.running >= v1alpha1.MaxLiveReadsOfNamespace {
			continue
		}
		for _, s := range q.waiting {
			if r.busy[s.key] == nil && r.ofGroup[s.key.group()] < v1alpha1.MaxLiveReadsOfAPIGroup {
				return q, s
			}
		}
	}
	return nil, nil
}

func (r *reads) run(ctx context.Context, q *readQueue, s *sharedRead) {
	s.err = loop.Recovered(func() (err error) {
		s.classes, err = r.read(ctx, s)
		return err
	})
	s.stop()
	close(s.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, s.key)
	r.running--
	if group := s.key.group(); r.ofGroup[group] > 1 {
		r.ofGroup[group]--
	} else {
		delete(r.ofGroup, group)
	}
	q.running--
	r.forget(q)
	r.begin() //nolint:contextcheck // The next read has a context of its own.
}
