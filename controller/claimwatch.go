package controller

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
	"github.com/classbind/classbind/selector"
)

// claimWatch follows the claims of one kind. Like the watch of classes it is the
// store of a Reflector, and holds of each claim no more than is needed: of those
// that wait, what binding reads; of those that are bound, which class's claims
// they count among.
type claimWatch struct {
	kind     *selector.ClaimKind
	resource schema.GroupVersionResource
	// objectKind is that of a claim.
	objectKind string
	namespaces *selector.Namespaces
	changed    func()
	stopped    context.Context
	stop       context.CancelFunc
	// before is the watch that this one replaces, whose counts stand until it has synced.
	before *claimWatch
	answers

	mu      sync.Mutex
	synced  bool
	bound   map[types.UID]classCounts
	waiting map[types.UID]*waitingClaim
	room    room

	// What follows is for who binds the waiting claims, nil if nobody does.
	binder *LateBinder
	view   *selector.View
	// again says that there is something to be given out though the view is the same.
	again bool
	// refusal to write a claim, and until when no other is tried.
	refusal error
	paused  time.Time
	// unwritable says why claims can be watched, and never be written.
	unwritable error
	// blind says why it is not known of which namespaces claims are bound.
	blind error
}

// classCounts are those that a bound claim adds one to.
type classCounts [2]*selector.Count

func (c classCounts) unbind() {
	for _, count := range c {
		if count != nil {
			count.Unbind()
		}
	}
}

func newClaimWatch(ctx context.Context, kind *selector.ClaimKind, of resource, namespaces *selector.Namespaces, changed func()) *claimWatch {
	w := &claimWatch{
		kind: kind, resource: of.GroupVersion().WithResource(schema.ParseGroupResource(kind.Name).Resource), objectKind: of.Kind,
		namespaces: namespaces, changed: changed,
		bound: map[types.UID]classCounts{}, waiting: map[types.UID]*waitingClaim{},
		room: room{most: v1alpha1.DefaultLateMemory, namespaces: map[string]*namespace{}},
	}
	w.stopped, w.stop = context.WithCancel(context.WithoutCancel(ctx)) // It outlives the reconciliation.
	return w
}

// start to follow the claims, until the watch is stopped.
func (w *claimWatch) start(client claimClient, answered func(error)) {
	objects{
		name: w.kind.Name, client: client, watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return client.watch(ctx, w.resource, o, w.readEvent)
		},
		// Every list is by pages, and consistent: asked for any version, or for a full
		// list when the pages have expired, the API server would send all in one. It is
		// each page that has a deadline, and not all of them.
		list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &internalversion.List{}
			var err error
			list.ResourceVersion, err = client.list(w.stopped, w.resource, func(raw []byte) error { //nolint:contextcheck // See above.
				seen, err := w.read(raw)
				list.Items = append(list.Items, seen)
				return err
			})
			return list, err
		},
	}.follow(w.stopped, w, &w.answers, answered)
}

// Transformer has nothing to do: what comes has been read.
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
		// Those that are there are counted before those that are not any more are
		// taken off: whoever chooses meanwhile sees no class that is empty.
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
		for _, n := range w.room.namespaces { // Groups of claims that were read, and changed before the list ended.
			for _, g := range n.groups {
				w.disband(g)
			}
			w.room.vacate(n)
		}
		// What was read may have taken the room of others.
		w.synced, w.again = true, true
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

// Resync has nothing to do.
func (w *claimWatch) Resync() error { return nil }

// update is called where a panic is recovered from, which must not leave mu locked.
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

// put a claim where it belongs. Its caller holds mu, as do those of the functions
// below that do not lock it.
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
			c.wait(time.Now())
		}
	}
	w.join(c, w.groupOf(n, s))
	c.version, c.parents, c.written = s.version, s.parents, false
	w.offer(c)
}

// groupOf a claim that was read. The group may have been forgotten since.
func (w *claimWatch) groupOf(n *namespace, s *claimSeen) *group {
	switch g := s.group; {
	case g.dropped || g == g.namespace.beyond:
		return n.beyond
	case !g.held:
		return w.room.group(n, g.ask)
	default:
		return g
	}
}

// join a group, and leave the one before.
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

// offer a claim to who binds it, if anybody does.
func (w *claimWatch) offer(c *waitingClaim) {
	if w.binder == nil {
		return
	}
	l := lineFresh
	if c.group == c.namespace.beyond {
		l = lineUnread
	}
	c.namespace.enqueue(l, c)
	w.again = true
}

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

func (w *claimWatch) unbind(uid types.UID) {
	w.bound[uid].unbind()
	delete(w.bound, uid)
}

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

// disband a group that has no claims.
func (w *claimWatch) disband(g *group) {
	if g.held && len(g.claims) == 0 {
		w.room.forget(g)
	}
}

func (w *claimWatch) namespaceOf(name string) *namespace {
	n := w.room.namespaces[name]
	if n == nil {
		n = &namespace{name: name, groups: map[selector.Ask]*group{}}
		n.beyond = &group{namespace: n, claims: map[*waitingClaim]struct{}{}}
		n.bound, n.asked = w.namespaces.Known(name)
		w.room.namespaces[name] = n
	}
	return n
}

// resize the room for selectors.
func (w *claimWatch) resize(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room.resize(bytes)
	w.again = true
}

// withdraw the claims from the counts.
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

// permit writes, unless there is a reason why none is possible, and say whether that is news.
func (w *claimWatch) permit(unless error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := (w.unwritable == nil) != (unless == nil)
	w.unwritable = unless
	return news
}

// writable says whether a claim can be written.
func (w *claimWatch) writable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unwritable == nil
}
