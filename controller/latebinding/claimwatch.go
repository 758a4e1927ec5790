package latebinding

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
)

// claimWatch follows the claims of one kind. Like the watch of classes, it is the store
// of a Reflector. It holds only what is needed: of a waiting claim, what binding reads;
// of a bound claim, the counts that it is part of.
type claimWatch struct {
	kind     *selector.ClaimKind
	resource schema.GroupVersionResource
	// objectKind is the kind of a claim object.
	objectKind string
	namespaces *selector.Namespaces
	changed    func()
	stopped    context.Context
	stop       context.CancelFunc
	// before is the watch that this one replaces. Its counts stay until this one has synced.
	before *claimWatch
	cluster.Health

	mu      sync.Mutex // guards all below
	synced  bool
	bound   map[types.UID]classCounts
	waiting map[types.UID]*waitingClaim
	room    room

	// binder of the waiting claims, nil if there is none. The fields below are for it.
	binder *Binder
	view   *selector.View
	// dirty says that claims may be due though the view is the same.
	dirty bool
	// refusal is why a claim could not be written. No other is tried until paused.
	refusal error
	paused  time.Time
	// unwritable says why claims can be watched but not written.
	unwritable error
	// namespaceErr says why namespaces cannot be checked.
	namespaceErr error
}

// classCounts are the counts that a bound claim is part of.
type classCounts [2]*selector.Count

func (c classCounts) unbind() {
	for _, count := range c {
		if count != nil {
			count.Unbind()
		}
	}
}

func newClaimWatch(
	ctx context.Context, kind *selector.ClaimKind, of cluster.Resource, namespaces *selector.Namespaces, changed func(),
) *claimWatch {
	w := &claimWatch{
		kind: kind, resource: of.GroupVersion().WithResource(schema.ParseGroupResource(kind.Name).Resource), objectKind: of.Kind,
		namespaces: namespaces, changed: changed,
		bound: map[types.UID]classCounts{}, waiting: map[types.UID]*waitingClaim{},
		room: room{limit: v1alpha1.DefaultLateMemory, namespaces: map[string]*namespace{}},
	}
	w.stopped, w.stop = context.WithCancel(context.WithoutCancel(ctx)) // It outlives the reconciliation.
	return w
}

// start follows the claims until the watch is stopped.
func (w *claimWatch) start(client claimClient, answered func(error)) {
	cluster.Objects{
		Name: w.kind.Name, Client: client, Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return client.watch(ctx, w.resource, o, w.readEvent)
		},
		// Every list is paged and consistent. If it asked for any version, or for a
		// full list after the pages expired, the API server would send everything in
		// one answer. Each page has a deadline, the whole list has none.
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
	}.Follow(w.stopped, w, &w.Health, answered)
}

// Transformer changes nothing: read has reduced the objects already.
func (*claimWatch) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return object, nil }
}

// Add is called by the Reflector, as are Update, Delete, Replace and Resync.
func (w *claimWatch) Add(object any) error {
	seen, err := w.seen(object)
	if err != nil {
		return err
	}
	w.update(func() { w.put(seen) })
	return nil
}

// Update a claim.
func (w *claimWatch) Update(object any) error { return w.Add(object) }

// Delete a claim.
func (w *claimWatch) Delete(object any) error {
	seen, err := w.seen(object)
	if err != nil {
		return err
	}
	w.update(func() {
		w.unbind(seen.uid)
		w.unwait(seen.uid)
	})
	return nil
}

// Replace all claims.
func (w *claimWatch) Replace(all []any, _ string) error {
	there := make(map[types.UID]struct{}, len(all))
	for _, object := range all {
		s, err := w.seen(object)
		if err != nil {
			return err
		}
		there[s.uid] = struct{}{}
	}
	w.update(func() {
		// Count the listed claims before the others are taken off, so that no
		// concurrent choice sees an empty class.
		for _, object := range all {
			w.put(object.(*claimSeen))
		}
		for uid := range w.bound {
			if _, ok := there[uid]; !ok {
				w.unbind(uid)
			}
		}
		for uid := range w.waiting {
			if _, ok := there[uid]; !ok {
				w.unwait(uid)
			}
		}
		for _, n := range w.room.namespaces { // Groups of claims that changed before the list ended.
			for _, g := range n.groups {
				w.disband(g)
			}
			w.room.vacate(n)
		}
		// The listed claims may have taken the room of others.
		w.synced, w.dirty = true, true
		if w.before != nil {
			w.before.withdraw()
			w.before = nil
		}
	})
	return nil
}

func (w *claimWatch) seen(object any) (*claimSeen, error) {
	s, ok := object.(*claimSeen)
	if !ok {
		return nil, fmt.Errorf("cannot read a claim of %q: it is a %T", w.kind.Name, object)
	}
	return s, nil
}

// Resync does nothing.
func (w *claimWatch) Resync() error { return nil }

// update applies a change under mu. Its callers recover from panics, so a panic must not leave mu locked.
func (w *claimWatch) update(change func()) {
	func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.stopped.Err() == nil {
			change()
		}
	}()
	w.changed()
}

// put stores a claim as bound or as waiting. The caller holds mu.
func (w *claimWatch) put(s *claimSeen) {
	if s.bound {
		w.bind(s)
		w.unwait(s.uid)
		return
	}
	w.unbind(s.uid)
	if s.group == nil {
		w.unwait(s.uid)
		return
	}
	c := w.waiting[s.uid]
	if c != nil && c.version == s.version {
		return
	}
	n := w.namespaceOf(s.namespace)
	if c == nil {
		c = &waitingClaim{uid: s.uid, name: s.name, namespace: n}
		n.waiting++
		w.waiting[s.uid] = c
		if w.binder != nil {
			c.awaitNotice(time.Now())
		}
	}
	w.join(c, w.groupOf(n, s))
	c.version, c.parents, c.written = s.version, s.parents, false
	w.offer(c)
}

// groupOf returns the group for a claim that was read. Its own may have been forgotten
// since. The caller holds mu.
func (w *claimWatch) groupOf(n *namespace, s *claimSeen) *group {
	switch g := s.group; {
	case g.dropped || g == g.namespace.overflow:
		return n.overflow
	case !g.held:
		return w.room.group(n, g.ask)
	default:
		return g
	}
}

// join moves a claim into a group. The caller holds mu.
func (w *claimWatch) join(c *waitingClaim, g *group) {
	if c.group != nil {
		delete(c.group.claims, c)
		if c.group != g {
			w.disband(c.group)
		}
	}
	c.group = g
	g.claims[c] = struct{}{}
}

// offer queues a claim for the binder, if there is one. The caller holds mu.
func (w *claimWatch) offer(c *waitingClaim) {
	if w.binder == nil {
		return
	}
	l := lineFresh
	if c.group == c.namespace.overflow {
		l = lineUnread
	}
	c.namespace.enqueue(l, c)
	w.dirty = true
}

// bind counts a bound claim. The caller holds mu.
func (w *claimWatch) bind(s *claimSeen) {
	before, known := w.bound[s.uid]
	var counts classCounts
	if tally := w.kind.Tally; tally != nil {
		counts = classCounts{tally.Bind(s.classes[0]), tally.Bind(s.classes[1])}
		if !known {
			defer tally.Seen(s.namespace, s.name, s.generateName, s.classes)
		}
	}
	before.unbind()
	w.bound[s.uid] = counts
}

// unbind takes a claim off the counts. The caller holds mu.
func (w *claimWatch) unbind(uid types.UID) {
	w.bound[uid].unbind()
	delete(w.bound, uid)
}

// unwait forgets a waiting claim. The caller holds mu.
func (w *claimWatch) unwait(uid types.UID) {
	c := w.waiting[uid]
	if c == nil {
		return
	}
	c.gone = true
	delete(w.waiting, uid)
	delete(c.group.claims, c)
	c.namespace.waiting--
	w.disband(c.group)
	w.room.vacate(c.namespace)
}

// disband forgets a group that has no claims. The caller holds mu.
func (w *claimWatch) disband(g *group) {
	if g.held && len(g.claims) == 0 {
		w.room.forget(g)
	}
}

// resize sets the room for selectors, in bytes.
func (w *claimWatch) resize(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room.resize(bytes)
	w.dirty = true
}

// withdraw stops the watch and takes its claims off the counts.
func (w *claimWatch) withdraw() {
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range w.bound {
		w.unbind(uid)
	}
	if w.before != nil {
		w.before.withdraw()
		w.before = nil
	}
}

// setUnwritable sets why claims cannot be written, nil if they can. changed says
// whether they can be written now and could not before, or the reverse.
func (w *claimWatch) setUnwritable(why error) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = (w.unwritable == nil) != (why == nil)
	w.unwritable = why
	return changed
}

// writable says whether claims can be written.
func (w *claimWatch) writable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unwritable == nil
}
