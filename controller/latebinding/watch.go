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
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// claimWatch follows the claims of one kind. Like the watch of classes, it is a cluster.Keeper. All changes to what it
// knows of the claims are made one by one: those of the Reflector, and those of late binding. What others read is published after each
// change, so they wait for none.
type claimWatch struct {
	kind       *selector.ClaimKind
	resource   schema.GroupVersionResource
	objectKind string // the kind of a claim object
	namespaces *claim.Namespaces
	changed    func()
	metrics    *Metrics // of panics; nil counts none
	stopped    context.Context
	stop       context.CancelFunc
	cluster.Health

	published atomic.Pointer[claimSummary]
	// owner has room for the one who owns the fields below. It is no mutex, because nobody waits for it once the watch is stopped.
	owner  chan struct{}
	state  *claimState
	before *claimWatch // the watch that this one replaces, whose counts stay until this one has synced
}

func newClaimWatch(
	ctx context.Context, kind *selector.ClaimKind, of cluster.Resource, namespaces *claim.Namespaces, changed func(),
) *claimWatch {
	w := &claimWatch{
		kind: kind, resource: of.GroupVersion().WithResource(kind.Resource.Resource), objectKind: of.Kind,
		namespaces: namespaces, changed: changed, owner: make(chan struct{}, 1), state: newClaimState(namespaces, kind),
	}
	w.stopped, w.stop = context.WithCancel(context.WithoutCancel(ctx)) // It outlives the reconciliation.
	w.published.Store(w.state.summary())
	return w
}

// own makes a change, alone. It does nothing once the watch is stopped. A change must not call own, for it would wait for itself.
func (w *claimWatch) own(change func(*claimState)) {
	select {
	case <-w.stopped.Done():
		return
	case w.owner <- struct{}{}:
	}
	defer func() { <-w.owner }()
	if w.stopped.Err() != nil { // Both were ready.
		return
	}
	defer func() { w.published.Store(w.state.summary()) }() // After a panic, too.
	change(w.state)
}

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
	w.owner <- struct{}{} // The last change has ended.
	defer func() { <-w.owner }()
	for uid := range w.state.bound.counts {
		w.state.bound.remove(uid)
	}
	w.before.withdraw()
}

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
