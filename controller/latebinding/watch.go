package latebinding

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// claimWatch follows the claims of one kind. Like the watch of classes, it is a cluster.Keeper. One goroutine, the owner, makes all changes
// to what it knows of the claims, one by one: those of the Reflector, and those of late binding. What others read is published after each
// change, so they wait for none.
type claimWatch struct {
	kind     *selector.ClaimKind
	resource schema.GroupVersionResource
	// objectKind is the kind of a claim object.
	objectKind string
	namespaces *claim.Namespaces
	changed    func()
	// metrics count panics. Nil counts none.
	metrics *Metrics
	stopped context.Context
	stop    context.CancelFunc
	cluster.Health

	changes   chan claimChange
	published atomic.Pointer[claimSummary]
	// ended is closed when the owner has ended, after the watch was stopped.
	ended chan struct{}

	// Only the owner uses the fields below. After it has ended, withdraw does.

	state *claimState
	// before is the watch that this one replaces. Its counts stay until this one has synced.
	before *claimWatch
}

// claimChange is a change for the owner. It sends the error of a panic to done, or nil.
type claimChange struct {
	do   func(*claimState)
	done chan error
}

// newClaimWatch returns a watch with an owner, which ends when the watch is stopped.
func newClaimWatch(
	ctx context.Context, kind *selector.ClaimKind, of cluster.Resource, namespaces *claim.Namespaces, changed func(),
) *claimWatch {
	w := &claimWatch{
		kind: kind, resource: of.GroupVersion().WithResource(kind.Resource.Resource), objectKind: of.Kind,
		namespaces: namespaces, changed: changed,
		changes: make(chan claimChange), ended: make(chan struct{}), state: newClaimState(namespaces, kind),
	}
	w.stopped, w.stop = context.WithCancel(context.WithoutCancel(ctx)) // It outlives the reconciliation.
	w.published.Store(w.state.summary())
	go w.run()
	return w
}

// run is the owner.
func (w *claimWatch) run() {
	defer close(w.ended)
	for {
		select {
		case <-w.stopped.Done():
			return
		case change := <-w.changes:
			if w.stopped.Err() != nil { // Both were ready.
				change.done <- nil
				return
			}
			err := loop.Recovered(func() error { change.do(w.state); return nil })
			w.published.Store(w.state.summary())
			change.done <- err
		}
	}
}

// own has the owner make a change, and waits until it is made. It does nothing once the watch is stopped. A panic ends this change alone,
// and goes on in the caller. A change must not call own, for the owner would wait for itself.
func (w *claimWatch) own(change func(*claimState)) {
	done := make(chan error, 1)
	select {
	case <-w.stopped.Done():
		return
	case w.changes <- claimChange{change, done}:
	}
	if err := <-done; err != nil {
		panic(err)
	}
}

// start follows the claims until the watch is stopped.
func (w *claimWatch) start(client Client, answered func(error)) {
	cluster.Follow(w.stopped, cluster.Objects{
		Name: w.kind.Name, Client: client, Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return client.watch(ctx, w.resource, o, w.readEvent)
		},
		// Every list is paged and consistent. If it asked for any version, or for a full list after the pages expired, the API server would
		// send everything in one answer. Each page has a deadline, the whole list has none.
		List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &internalversion.List{}
			var err error
			list.ResourceVersion, err = client.list(w.stopped, w.resource, func(raw []byte) error { //nolint:contextcheck // See above.
				seen, err := w.read(raw)
				list.Items = append(list.Items, seen)
				return err
			})
			return list, err
		},
	}, w, &w.Health, answered)
}

// Read changes nothing: read has reduced the object already.
func (w *claimWatch) Read(object any) (*claimSeen, error) {
	s, ok := object.(*claimSeen)
	if !ok {
		return nil, fmt.Errorf("cannot read a claim of %q: it is a %T", w.kind.Name, object)
	}
	return s, nil
}

// Put a claim that is new or has changed.
func (w *claimWatch) Put(seen *claimSeen) { w.update(func(s *claimState) { s.put(seen) }) }

// Remove a claim.
func (w *claimWatch) Remove(seen *claimSeen) {
	w.update(func(s *claimState) { s.remove(seen.uid, seen.version) })
}

// Replace all claims.
func (w *claimWatch) Replace(all []*claimSeen) {
	w.update(func(s *claimState) {
		s.replace(all)
		w.before.withdraw()
		w.before = nil
	})
}

// update makes a change that others are told about.
func (w *claimWatch) update(change func(*claimState)) {
	w.own(change)
	w.changed()
}

// withdraw stops the watch, if there is one, and takes its claims off the counts.
func (w *claimWatch) withdraw() {
	if w == nil {
		return
	}
	w.stop()
	<-w.ended
	for uid := range w.state.bound.counts {
		w.state.bound.remove(uid)
	}
	w.before.withdraw()
}

// setUnwritable sets why claims cannot be written, nil if they can.
func (w *claimWatch) setUnwritable(why error) {
	news := false
	w.own(func(s *claimState) {
		news = (s.unwritable == nil) != (why == nil)
		s.unwritable = why
	})
	if news {
		w.changed()
	}
}
