package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/classbind/classbind/selector"
)

const (
	// longestProblem of a claim that is held in memory.
	longestProblem = 500
	// longestSelector that is: its author chooses it, and parsed it takes up to
	// fifteen times as much.
	longestSelector = 1024
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
	// selects the namespaces whose claims are bound.
	selects labels.Selector
	// own namespace of classbind.
	own     string
	changed func()
	stopped context.Context
	stop    context.CancelFunc
	// before is the watch that this one replaces, whose counts stand until it has synced.
	before *claimWatch
	answers

	mu         sync.Mutex
	synced     bool
	bound      map[types.UID]classCounts
	waiting    map[types.UID]*waitingClaim
	groups     map[string]*group
	namespaces map[string]*namespace

	// What follows is for who binds the waiting claims, nil if nobody does.
	binder *LateBinder
	view   *selector.View
	again  bool
	fresh  []*waitingClaim
	untold []untold
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

// waitingClaim has no class and could have one.
type waitingClaim struct {
	namespace *namespace
	group     *group
	uid       types.UID
	name      string
	version   string
	// parents of the class reference that it has.
	parents int8
	// written says that this version of it was bound, and told that its author knows
	// that there is no class.
	written, told bool
}

// group of the claims that have the same candidates.
type group struct {
	key       string
	namespace string
	selector  labels.Selector
	// problem for which none of them can be bound, empty if they can.
	problem string
	claims  map[*waitingClaim]struct{}
	// matched says whether they had a candidate in the view.
	matched bool
	view    *selector.View
}

// namespace of claims that wait.
type namespace struct {
	name    string
	waiting int
	// bound says whether its claims are, once that has been asked.
	bound, asked bool
}

type untold struct {
	claim *waitingClaim
	since time.Time
}

// claimSeen is what is read of a claim on its way into the store.
type claimSeen struct {
	uid             types.UID
	namespace, name string
	version         string
	bound           bool
	classes         [2]uint64
	generateName    string
	group           *group // nil if it is left alone
	parents         int8
}

// GetObjectKind is for lists, as is DeepCopyObject.
func (*claimSeen) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject is called by nobody who changes it.
func (s *claimSeen) DeepCopyObject() runtime.Object { return s }

func newClaimWatch(ctx context.Context, kind *selector.ClaimKind, of resource, selects labels.Selector, own string, changed func()) *claimWatch {
	w := &claimWatch{
		kind: kind, resource: of.GroupVersion().WithResource(schema.ParseGroupResource(kind.Name).Resource), objectKind: of.Kind,
		selects: selects, own: own, changed: changed,
		bound: map[types.UID]classCounts{}, waiting: map[types.UID]*waitingClaim{},
		groups: map[string]*group{}, namespaces: map[string]*namespace{},
	}
	w.stopped, w.stop = context.WithCancel(context.WithoutCancel(ctx)) // It outlives the reconciliation.
	return w
}

// start to follow the claims, until the watch is stopped.
func (w *claimWatch) start(client dynamic.Interface, answered func(error)) {
	claims := client.Resource(w.resource)
	objects{
		name: w.kind.Name, client: client, watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return claims.Watch(ctx, o)
		},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" { // Of any version, the API server would list all in one page.
				o.ResourceVersion = ""
			}
			page, err := claims.List(ctx, o)
			if err != nil {
				return nil, err
			}
			return w.readPage(page)
		},
	}.follow(w.stopped, w, &w.answers, answered)
}

// readPage keeps the few fields of each claim, so that no more than a page of them is held whole.
func (w *claimWatch) readPage(page *unstructured.UnstructuredList) (runtime.Object, error) {
	list := &internalversion.List{Items: make([]runtime.Object, len(page.Items))}
	list.ResourceVersion, list.Continue, list.RemainingItemCount = page.GetResourceVersion(), page.GetContinue(), page.GetRemainingItemCount()
	for i := range page.Items {
		seen, err := w.read(&page.Items[i])
		if err != nil {
			return nil, err
		}
		list.Items[i] = seen
	}
	return list, nil
}

// Transformer does the same for a list that is streamed.
func (w *claimWatch) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return w.read(object) }
}

func (w *claimWatch) read(object any) (*claimSeen, error) {
	if seen, ok := object.(*claimSeen); ok {
		return seen, nil
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("cannot read a claim of %q: it is a %T", w.kind.Name, object)
	}
	seen := &claimSeen{uid: u.GetUID(), namespace: u.GetNamespace(), name: u.GetName(), version: u.GetResourceVersion()}
	if seen.classes, seen.bound = w.kind.BoundTo(seen.namespace, u.Object); seen.bound {
		seen.generateName = u.GetGenerateName()
		return seen, nil
	}
	if !w.kind.BindLater {
		return seen, nil // It waits for nothing.
	}
	claim, errs := w.kind.NewClaim(seen.namespace, seen.name, u.Object)
	if claim.Settled != "" || u.GetDeletionTimestamp() != nil {
		return seen, nil
	}
	seen.parents = int8(w.kind.Parents(u.Object)) //nolint:gosec // A path has ten names at most.
	key, problem := w.kind.Group(claim), ""
	if err := errs.ToAggregate(); err != nil {
		problem = err.Error()
	} else if len(key) > longestSelector {
		problem = fmt.Sprintf("its selector is too long to be bound later, by more than %d characters: shorten it, or set the class reference", longestSelector)
	}
	if problem != "" { // In a string of its own, which does not keep the whole one.
		key = "!" + strings.ToValidUTF8(problem[:min(len(problem), longestProblem)], "")
		problem, claim.Selector = key[1:], nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if seen.group = w.groups[key]; seen.group == nil {
		seen.group = w.intern(&group{key: key, namespace: claim.Namespace, selector: claim.Selector, problem: problem, claims: map[*waitingClaim]struct{}{}})
	}
	return seen, nil
}

// intern the group, of which there may be another since it was read.
func (w *claimWatch) intern(g *group) *group {
	if known := w.groups[g.key]; known != nil {
		return known
	}
	w.groups[g.key] = g
	return g
}

// Add is called by the Reflector, as are Update, Delete, Replace and Resync.
func (w *claimWatch) Add(object any) error {
	seen, err := w.read(object)
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
	seen, err := w.read(object)
	if err != nil {
		return err
	}
	w.update(func() {
		w.unbind(seen.uid)
		w.unwait(seen.uid)
		w.disband(seen.group)
	})
	return nil
}

// Replace all claims.
func (w *claimWatch) Replace(all []any, _ string) error {
	there := make(map[types.UID]struct{}, len(all))
	seen := make([]*claimSeen, len(all))
	for i, object := range all {
		s, err := w.read(object)
		if err != nil {
			return err
		}
		seen[i], there[s.uid] = s, struct{}{}
	}
	w.update(func() {
		// Those that are there are counted before those that are not any more are
		// taken off: whoever chooses meanwhile sees no class that is empty.
		for _, s := range seen {
			w.put(s)
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
		for _, g := range w.groups {
			w.disband(g)
		}
		w.synced = true
		if w.before != nil {
			w.before.withdraw()
			w.before = nil
		}
	})
	return nil
}

// Resync has nothing to do.
func (w *claimWatch) Resync() error { return nil }

func (w *claimWatch) update(change func()) {
	w.mu.Lock()
	if w.stopped.Err() == nil {
		change()
	}
	w.mu.Unlock()
	w.changed()
}

// put a claim where it belongs. The mutex is held by who calls it, as by those of the rest of this file.
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
	if c == nil {
		c = &waitingClaim{uid: s.uid, name: s.name, namespace: w.namespaceOf(s.namespace)}
		c.namespace.waiting++
		w.waiting[s.uid] = c
		if w.binder != nil {
			w.untold = append(w.untold, untold{c, time.Now()})
		}
	}
	if c.group != nil {
		delete(c.group.claims, c)
		w.disband(c.group)
	}
	c.group = w.intern(s.group)
	c.group.claims[c] = struct{}{}
	c.version, c.parents, c.written = s.version, s.parents, false
	if w.binder != nil {
		w.fresh = append(w.fresh, c)
	}
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
	delete(w.waiting, uid)
	delete(c.group.claims, c)
	w.disband(c.group)
	if c.namespace.waiting--; c.namespace.waiting == 0 {
		delete(w.namespaces, c.namespace.name)
	}
}

// disband a group that has no claims.
func (w *claimWatch) disband(g *group) {
	if g != nil && len(g.claims) == 0 && w.groups[g.key] == g {
		delete(w.groups, g.key)
	}
}

func (w *claimWatch) namespaceOf(name string) *namespace {
	n := w.namespaces[name]
	if n == nil {
		n = &namespace{name: name}
		n.bound, n.asked = w.statically(name)
		w.namespaces[name] = n
	}
	return n
}

// statically is what is known of a namespace before anybody asks for its labels:
// whether its claims are bound, and whether that is sure. It is what the entry
// in the webhook configuration says, too.
func (w *claimWatch) statically(namespace string) (bound, sure bool) {
	switch namespace {
	case metav1.NamespaceSystem, w.own:
		return false, true
	case "": // A namespaceSelector says nothing of cluster-scoped claims.
		return true, true
	}
	return w.selects.Empty(), w.selects.Empty()
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

// ClaimCounts of one kind, of which none wait but with BindLater.
type ClaimCounts struct{ Bound, Waiting int }

// counts of the claims, and whether they are known.
func (w *claimWatch) counts() (c ClaimCounts, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Bound = len(w.bound)
	for _, n := range w.namespaces {
		if n.bound || !n.asked {
			c.Waiting += n.waiting
		}
	}
	return c, w.synced
}

// problem is why claims are not known, nil if they are.
func (w *claimWatch) problem() error {
	_, err := w.lastError()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !w.synced:
		return errNoAnswer
	}
	return nil
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

// lateProblem is why claims that wait are not bound, nil if they are. What is no
// concern of any claim any more is none.
func (w *claimWatch) lateProblem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return w.unwritable
	}
	return cmp.Or(w.unwritable, w.refusal, w.blind)
}

var errNoAnswer = errors.New("the API server has not listed the claims yet")
