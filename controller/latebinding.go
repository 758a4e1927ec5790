package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

const (
	// lateRound is how often it is seen whether there are other classes than
	// before: what is created together is then drawn from together.
	lateRound = 500 * time.Millisecond
	// lateRetry is how long after a failure a claim is tried again at first.
	lateRetry = time.Second
	// lateAsking is for how long in each round classes are asked for, by all kinds
	// together: what is left is for the next round.
	lateAsking = 100 * time.Millisecond
	// namespaceRounds is how many rounds pass until namespaces are asked again.
	namespaceRounds = 10
	// lateWorkers write claims at once.
	lateWorkers = 16
	// eventWorkers create events at once.
	eventWorkers = 4
	// stayGrace is how long a claim waits for a class before it is told that there is none.
	stayGrace = 10 * time.Second
)

// Namespace is what is read of namespaces: their labels.
func Namespace() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return o
}

// LateBinder binds the claims that wait for a class, and tells those that go on
// waiting why. It runs on the leader. A claim is written in the version that was
// seen without a class, or not at all: whoever is faster, its author, another
// leader or a write of ours that seemed to fail, has won, and the watch shows it.
type LateBinder struct {
	Claims *Claims
	// Events are created on the claims.
	Events Events
	// Namespaces are read from a cache.
	Namespaces client.Reader
	// Rate is how many claims are written in a second at most, and how many events
	// on claims, and twice it in a burst.
	Rate int
	// Fresh is a random number.
	Fresh func() uint64

	// interval of the rounds, and how long after a failure a claim is tried again:
	// lateRound and lateRetry, but in tests.
	interval, retry time.Duration

	// unreadable says, for the rest of a round, why namespaces cannot be read.
	unreadable error
	limiter    flowcontrol.RateLimiter
	queue      workqueue.TypedRateLimitingInterface[waitingItem]
}

// waitingItem is a claim that is to be bound.
type waitingItem struct {
	watch *claimWatch
	uid   types.UID
}

// Start returns when the leadership ends.
func (b *LateBinder) Start(ctx context.Context) error {
	b.limiter = flowcontrol.NewTokenBucketRateLimiter(float32(b.Rate), 2*b.Rate)
	b.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[waitingItem](cmp.Or(b.retry, lateRetry), 5*time.Minute))
	var workers sync.WaitGroup
	defer func() {
		b.queue.ShutDown()
		workers.Wait()
		// The watches outlive the term by as much as it takes to see that it is over.
		b.Claims.resign(context.WithoutCancel(ctx), b)
	}()
	if err := b.Claims.lead(ctx, b); err != nil {
		return err
	}
	for range lateWorkers {
		workers.Go(func() {
			for b.work(ctx) {
			}
		})
	}
	events := flowcontrol.NewTokenBucketRateLimiter(float32(b.Rate), 2*b.Rate)
	for range eventWorkers {
		workers.Go(func() { b.Events.run(ctx, events) })
	}
	round := 0
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		b.unreadable = nil
		watches := b.Claims.watches()
		for _, w := range watches {
			if w.kind.BindLater {
				b.round(ctx, w, round%namespaceRounds == 0, lateAsking/time.Duration(len(watches)))
			}
		}
		round++
	}, cmp.Or(b.interval, lateRound))
	return nil
}

// round queues the claims of a kind that can be bound since the last, and takes
// no longer than its share of asking.
func (b *LateBinder) round(ctx context.Context, w *claimWatch, askAgain bool, asking time.Duration) {
	view := b.view(w)
	w.serve(b, time.Now())
	if view == nil || !w.writable() {
		w.startOver()
		return
	}
	w.askNamespaces(askAgain, func(name string) (bool, error) { return b.admits(ctx, w, name) })
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	for _, uid := range w.due(ctx, view) {
		b.queue.Add(waitingItem{w, uid})
	}
	b.Events.tell(ctx, w, view, time.Now())
}

// view of the classes for a watch, nil where there is none that fits it now.
func (b *LateBinder) view(w *claimWatch) *selector.View {
	view := b.Claims.registration.Inventory.Snapshot()[w.kind.Name]
	if view == nil || view.Fault != nil || view.Kind.Revision != w.kind.Revision {
		return nil
	}
	return view
}

// admits says whether the labels of a namespace are what the ClaimKind selects.
// A cache that does not fill has every read wait, so that only one is tried a round.
func (b *LateBinder) admits(ctx context.Context, w *claimWatch, name string) (bool, error) {
	if b.unreadable != nil {
		return false, b.unreadable
	}
	ctx, cancel := context.WithTimeout(ctx, lateRound)
	defer cancel()
	n := Namespace()
	err := b.Namespaces.Get(ctx, client.ObjectKey{Name: name}, n)
	if client.IgnoreNotFound(err) != nil {
		b.unreadable = fmt.Errorf("cannot read the labels of namespaces: %w", err)
		return false, b.unreadable
	}
	return err == nil && w.selects.Matches(labels.Set(n.Labels)), nil
}

func (b *LateBinder) work(ctx context.Context) bool {
	item, shutdown := b.queue.Get()
	if shutdown || ctx.Err() != nil {
		return false
	}
	defer b.queue.Done(item)
	again, err := b.bind(ctx, item)
	switch {
	case err != nil:
		log := logf.FromContext(ctx)
		if isOutdated(err) {
			log = log.V(1)
		}
		log.Info("Cannot bind a waiting claim, and tries again", "claimKind", item.watch.kind.Name, "uid", item.uid, "because", err.Error())
		b.queue.AddRateLimited(item)
	case again > 0:
		b.queue.AddAfter(item, again)
	default:
		b.queue.Forget(item)
	}
	return true
}

// bind a claim, if it still waits and there still is a class for it. Its error
// is worth trying again, and again says after how long, without an error.
func (b *LateBinder) bind(ctx context.Context, item waitingItem) (again time.Duration, err error) {
	if paused := item.watch.pause(time.Now()); paused > 0 {
		return paused, nil
	}
	if _, ok := item.watch.waits(item.uid); !ok {
		return 0, nil
	}
	if b.limiter.Wait(ctx) != nil {
		return 0, nil // The term is over.
	}
	claim, ok := item.watch.waits(item.uid)
	if !ok {
		return 0, nil
	}
	view := b.view(item.watch)
	if view == nil {
		item.watch.missed(item.uid)
		return 0, nil
	}
	decision := view.Decide(selector.Claim{Namespace: claim.namespace, Name: claim.name, Selector: claim.selector}, b.Fresh())
	if decision.Class == nil {
		item.watch.missed(item.uid)
		return 0, nil
	}
	decision.Reserve("", time.Now())
	version, err := b.write(ctx, item.watch, claim, decision)
	outcome := lateFailed
	defer func() { b.Claims.Metrics.tried(view.Kind.Name, outcome) }()
	log := logf.FromContext(ctx).WithValues("claimKind", view.Kind.Name, "namespace", claim.namespace, "name", claim.name)
	switch {
	case err == nil:
		outcome = lateBound
		item.watch.wrote(claim)
		log.Info("Bound a waiting claim", "class", decision.Class.String(), "reason", decision.Reason(), "strategy", view.Kind.Strategy.Name, "candidates", decision.Candidates, "dropped", decision.DroppedText())
		b.Events.bound(item.watch, claim, version, decision)
		return 0, nil
	case isOutdated(err):
		outcome = lateChanged
		return 0, err
	case isUnauthorized(err):
		log.Info("Cannot bind waiting claims", "because", err.Error())
		item.watch.refuse(err, time.Now().Add(retryAfter))
		return retryAfter, nil
	}
	return 0, err
}

// write the reference into the claim as it was seen, and return its new version.
func (b *LateBinder) write(ctx context.Context, w *claimWatch, claim waitingAttempt, d selector.Decision) (version string, err error) {
	patch := selector.Patch(
		selector.Test("/metadata/uid", string(claim.uid)),
		selector.Test("/metadata/resourceVersion", claim.version),
		d.View.Kind.AddReference(claim.parents, d.Class),
	)
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	after, err := b.Claims.client.Resource(w.resource).Namespace(claim.namespace).
		Patch(ctx, claim.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil {
		return "", fmt.Errorf("cannot write the class of %q: %w", claim.name, err)
	}
	if _, bound := d.View.Kind.BoundTo(claim.namespace, after.Object); !bound {
		return "", fmt.Errorf("cannot write the class of %q: the schema of its kind has no field %s, so the API server left it out: correct spec.paths.classRef of the ClaimKind", claim.name, d.View.Kind.ReferencePath())
	}
	return after.GetResourceVersion(), nil
}

// isOutdated says that the claim probably is not any more what was seen of it, as
// the watch is about to show. Of a JSON Patch whose test fails, the API server
// says no more than that it is at fault; where the claim would be invalid, it
// names the claim. Another webhook may deny the claim in the same words, though:
// it is tried again.
func isOutdated(err error) bool {
	if apierrors.IsNotFound(err) {
		return true
	}
	answered := apierrors.APIStatus(nil)
	if !errors.As(err, &answered) || answered.Status().Code != http.StatusUnprocessableEntity {
		return false
	}
	details := answered.Status().Details
	return details == nil || details.Kind == "" && len(details.Causes) == 0
}

// isUnauthorized says that no claim of the kind may be written, by what every
// authorizer's refusal says. Another webhook, or a policy, refuses one claim
// alone, and that must not hold up the others.
func isUnauthorized(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot patch resource")
}

// waitingAttempt is what is written by.
type waitingAttempt struct {
	uid             types.UID
	namespace, name string
	version         string
	parents         int
	selector        labels.Selector
}

// waits says whether a claim can be bound, and by what.
func (w *claimWatch) waits(uid types.UID) (waitingAttempt, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[uid]
	if c == nil || c.written || !c.namespace.bound || c.group.problem != "" || w.stopped.Err() != nil {
		return waitingAttempt{}, false
	}
	return waitingAttempt{uid: uid, namespace: c.namespace.name, name: c.name, version: c.version, parents: int(c.parents), selector: c.group.selector}, true
}

// wrote the claim as it was: the next version of it is another matter.
func (w *claimWatch) wrote(a waitingAttempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiting[a.uid]; c != nil && c.version == a.version {
		c.written = true
	}
	w.refusal = nil
}

// missed says that there is no class any more, or that it is not known.
func (w *claimWatch) missed(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiting[uid]; c != nil {
		c.group.matched, c.group.view, w.again = false, nil, true
	}
}

func (w *claimWatch) refuse(err error, until time.Time) {
	w.mu.Lock()
	w.refusal, w.paused = err, until
	w.mu.Unlock()
	w.changed()
}

// pause for which no claim is to be written.
func (w *claimWatch) pause(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused.Sub(now)
}

// dismiss the binder, if it still is the one that is served.
func (w *claimWatch) dismiss(b *LateBinder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.binder == b {
		w.appoint(nil, time.Time{})
	}
}

// serve a binder, from the beginning if it is another.
func (w *claimWatch) serve(b *LateBinder, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.binder != b {
		w.appoint(b, now)
	}
}

func (w *claimWatch) appoint(b *LateBinder, now time.Time) {
	w.binder, w.untold, w.refusal, w.blind, w.paused = b, nil, nil, nil, time.Time{}
	w.unmatch()
	if b == nil {
		return
	}
	for _, c := range w.waiting { // Events that were ahead have gone with who had them.
		c.told = false
		w.untold = append(w.untold, untold{c, now})
	}
}

// startOver with all claims, when there are classes to ask again.
func (w *claimWatch) startOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unmatch()
}

func (w *claimWatch) unmatch() {
	w.view, w.fresh = nil, nil
	for _, g := range w.groups {
		g.matched, g.view = false, nil
	}
}

// askNamespaces whether their claims are bound: those that have not been asked,
// or again all those whose labels matter. What is not answered stays as it was
// known, and is asked in the next round.
func (w *claimWatch) askNamespaces(again bool, admits func(string) (bool, error)) {
	w.mu.Lock()
	again = again || w.blind != nil
	var names []string
	for name, n := range w.namespaces {
		if _, sure := w.statically(name); !sure && (again || !n.asked) {
			names = append(names, name)
		}
	}
	w.mu.Unlock()
	bound := make(map[string]bool, len(names))
	var err error
	for _, name := range names {
		var is bool
		if is, err = admits(name); err != nil {
			break
		}
		bound[name] = is
	}
	w.mu.Lock()
	changed := (err == nil) != (w.blind == nil)
	w.blind = err
	joined := false
	for name, is := range bound {
		if n := w.namespaces[name]; n != nil {
			joined = joined || is && n.asked && !n.bound
			n.bound, n.asked = is, true
		}
	}
	if joined {
		for _, c := range w.waiting {
			w.fresh = append(w.fresh, c)
			w.untold = append(w.untold, untold{c, time.Now()})
		}
	}
	w.mu.Unlock()
	if changed {
		w.changed()
	}
}

// due are the claims for which there is a class now and was none before. Each
// group of claims is asked once for each view; of one that was matched before,
// all claims have been given out. Groups that are left when the context ends are
// asked the next time: which, is the map's random order, so none is left for ever.
func (w *claimWatch) due(ctx context.Context, view *selector.View) (due []types.UID) {
	w.mu.Lock()
	if w.view == view && len(w.fresh) == 0 && !w.again {
		w.mu.Unlock()
		return nil
	}
	w.view, w.again = view, false
	var asked []*group
	for _, g := range w.groups {
		if g.view != view {
			asked = append(asked, g)
		}
	}
	w.mu.Unlock()
	matched := make([]bool, len(asked))
	left := false
	for i, g := range asked {
		matched[i] = g.problem == "" && view.Choose(selector.Claim{Namespace: g.namespace, Selector: g.selector}, 0).Class != nil
		if ctx.Err() != nil {
			asked, left = asked[:i+1], i+1 < len(asked)
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = w.again || left
	for i, g := range asked {
		for c := range g.claims {
			switch {
			case matched[i] == g.matched:
			case matched[i]: // It may be that its namespace is not known yet.
				w.fresh = append(w.fresh, c)
			case !c.told:
				w.untold = append(w.untold, untold{c, time.Now()})
			}
		}
		g.view, g.matched = view, matched[i]
	}
	fresh := w.fresh
	w.fresh = nil
	for _, c := range fresh {
		switch {
		case w.waiting[c.uid] != c: // It has gone meanwhile.
		case c.group.view != view || !c.namespace.asked: // It has come meanwhile.
			w.fresh = append(w.fresh, c)
		case c.group.matched:
			due = append(due, c.uid)
		}
	}
	return due
}
