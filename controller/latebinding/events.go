package latebinding

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/util/flowcontrol"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	eventTimeout = 10 * time.Second // of the creation of one event
	longestNote  = 1024             // the longest note that the API server accepts, in bytes
	// noteOverflow is for claims whose selectors are not held.
	noteOverflow = "too many claims of this namespace wait, so classbind does not keep this selector: " +
		"it reads the claim again from time to time, and binds it when a class matches"
)

// Events creates events on claims. The name of an event is made of its reason and its claim, so the API server refuses a second one,
// whichever leader sends it, for as long as it keeps events (an hour by default). client-go's recorders know only the events that they sent
// themselves, and drop events under load.
type Events struct {
	client   eventsclient.EventsV1Interface
	instance string
	queue    *eventQueue
}

// queuedEvent is an event to be created. failed is called if that fails.
type queuedEvent struct {
	*eventsv1.Event
	failed func()
}

// NewEvents returns Events that this instance of classbind reports.
func NewEvents(client eventsclient.EventsV1Interface, instance string) Events {
	return Events{client: client, instance: instance, queue: newEventQueue(v1beta1.LateEvents)}
}

// run creates the queued events until the context ends. It runs in the background, so
// that binding a claim does not wait for the event of another.
func (e Events) run(ctx context.Context, limiter flowcontrol.RateLimiter) {
	for limiter.Wait(ctx) == nil {
		event, ok := e.queue.pop(ctx)
		if !ok {
			return
		}
		_ = recovered.Do(func() error { e.create(ctx, event); return nil })
	}
}

func (e Events) create(ctx context.Context, queued *queuedEvent) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	queued.EventTime = metav1.NowMicro()
	_, err := e.client.Events(queued.Namespace).Create(ctx, queued.Event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		queued.failed()
		logf.FromContext(ctx).V(1).Info("Cannot create an event",
			"reason", queued.Reason, "claim", queued.Regarding.Name, "because", truncate.Error(err).Error())
	}
}

func (e Events) bound(w *claimWatch, claim waitingAttempt, version string, d *selector.Decision) {
	note := fmt.Sprintf("bound to %s", d.Class)
	switch {
	case d.View.Kind.Use != "": // It must not learn how many there are that it may not use.
	case d.Candidates > 1:
		note += fmt.Sprintf(", of %d candidates", d.Candidates)
	default:
		note += ", of 1 candidate"
	}
	if unread := d.View.UnreadText(); unread != "" {
		note += "; " + unread
	}
	event := e.event(w, claim, v1beta1.EventBoundToClass, note)
	event.Type, event.Name = corev1.EventTypeNormal, event.Name+"."+version
	e.queue.push(&queuedEvent{event, func() {}}, v1beta1.LateEvents)
}

// warnOnce warns of a claim that has no class, or of one that has one in vain, which may have waited for it before.
func (e Events) warnOnce(w *claimWatch, claim waitingAttempt, reason, note string) {
	news := false
	w.own(func(s *claimState) {
		if c := s.waiting[claim.uid]; c != nil && reason == v1beta1.EventNoMatchingClass {
			news, c.notified = !c.notified, true
		} else if c != nil {
			news, c.told, c.notified = !c.told, true, true
		}
	})
	if news {
		e.warn(w, claim, reason, note, time.Now())
	}
}

// warn queues a warning about a claim, which waits again for its event from now on if there is no place for it, and if it
// cannot be created.
func (e Events) warn(w *claimWatch, claim waitingAttempt, reason, note string, now time.Time) {
	claim.ask = "" // It may be long, and an event does not need it.
	failed := func() { w.retryEvent(claim, time.Now()) }
	if !e.queue.push(&queuedEvent{e.event(w, claim, reason, note), failed}, v1beta1.LateEvents/2) {
		w.retryEvent(claim, now)
	}
}

// notifyWaiting queues one event for each claim that has waited for noticeDelay and matches no class. Namespaces take turns. It handles at
// least one claim, even if the context has ended, and leaves the rest for the next call.
func (e Events) notifyWaiting(ctx context.Context, w *claimWatch, view *selector.View, now time.Time) {
	place := func(namespace string) bool { return e.queue.hasPlace(namespace, v1beta1.LateEvents/2) }
	for {
		var claims []waitingAttempt
		w.own(func(s *claimState) { claims = s.takeToNotify(now, place) })
		for i, claim := range claims {
			if i > 0 && ctx.Err() != nil {
				w.retryEvent(claim, now.Add(-noticeDelay)) // It has waited long enough already.
				continue
			}
			note, waits := claim.note(ctx, view)
			if !waits { // It is about to be bound, unless the class goes before that, or not to be bound yet.
				w.retryEvent(claim, now)
				continue
			}
			e.warn(w, claim, v1beta1.EventNoMatchingClass, note, now)
		}
		if len(claims) == 0 || ctx.Err() != nil {
			return
		}
	}
}

// note says why a claim waits for a class. waits is false if it has one now, or is not to be bound yet.
func (a waitingAttempt) note(ctx context.Context, view *selector.View) (note string, waits bool) {
	if problem := a.ask.Problem(); problem != "" || a.unread {
		return cmp.Or(problem, noteOverflow), true
	}
	err := recovered.Do(func() error {
		c, err := a.ask.Claim(a.namespace, a.name)
		if err != nil {
			return err
		}
		d, err := preview(ctx, view, c)
		note, waits = d.Warning(), d.Class == nil && d.Reason() != claim.NotYet && !d.Unneeded()
		return err
	})
	if err != nil {
		return textFor(err), true
	}
	return strings.Clone(truncate.String(note, longestNote)), waits
}

func (w *claimWatch) retryEvent(claim waitingAttempt, now time.Time) {
	w.own(func(s *claimState) {
		if c := s.waiting[claim.uid]; c != nil && s.binder != nil {
			c.notified, c.told = false, false
			c.awaitNotice(now)
		}
	})
}

// takeToNotify returns the claims that have waited long enough, one of each namespace
// that has a place for its event. It marks them as notified.
func (s *claimState) takeToNotify(now time.Time, place func(namespace string) bool) (claims []waitingAttempt) {
	for name, n := range s.room.namespaces {
		if c := n.nextToNotify(now); c != nil && place(name) {
			n.dequeue(lineUnnotified)
			c.notified = true
			claims = append(claims, c.attempt())
		}
	}
	return claims
}

func (n *namespace) nextToNotify(now time.Time) *waitingClaim {
	for c := n.first(lineUnnotified); c != nil; c = n.first(lineUnnotified) {
		switch {
		case !n.selected && !n.checked, now.Sub(time.Unix(0, c.since)) < noticeDelay:
			return nil
		case n.selected && !c.notified && !c.group.matched && !c.group.notYet && !c.written:
			return c
		}
		n.dequeue(lineUnnotified)
	}
	return nil
}

// event is a warning about a claim. Its name has the claim kind, because a claim may wait for a class of each of several.
func (e Events) event(w *claimWatch, claim waitingAttempt, reason, note string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(claim.namespace, metav1.NamespaceDefault), // Events on cluster-scoped objects are there.
			Name:      strings.ToLower(reason) + "." + string(claim.uid) + "." + w.kind.Name,
		},
		ReportingController: v1beta1.EventController, ReportingInstance: e.instance,
		Type: corev1.EventTypeWarning, Reason: reason, Action: "Bind", Note: truncate.String(note, longestNote),
		Regarding: corev1.ObjectReference{
			APIVersion: w.resource.GroupVersion().String(), Kind: w.objectKind,
			Namespace: claim.namespace, Name: claim.name, UID: claim.uid, ResourceVersion: claim.version,
		},
	}
}

// eventQueue is a queue of bounded length. A namespace may have up to three times as many events as places are free. Alone it fills three
// quarters, so that places are left for the next.
type eventQueue struct {
	mu     sync.Mutex // guards queue
	queue  fair.Queue[*queuedEvent]
	queued chan struct{} // one for each event
}

func newEventQueue(limit int) *eventQueue { return &eventQueue{queued: make(chan struct{}, limit)} }

// hasPlace reports whether a namespace may add an event while the queue may hold limit events.
func (q *eventQueue) hasPlace(namespace string, limit int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.place(namespace, limit)
}

func (q *eventQueue) place(namespace string, limit int) bool {
	return q.queue.LenOf(namespace) < 3*(min(limit, cap(q.queued))-q.queue.Len())
}

// push adds an event if hasPlace allows it, and reports whether it did.
func (q *eventQueue) push(e *queuedEvent, limit int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.place(e.Regarding.Namespace, limit) {
		return false
	}
	q.queue.Push(e.Regarding.Namespace, e)
	q.queued <- struct{}{}
	return true
}

func (q *eventQueue) pop(ctx context.Context) (*queuedEvent, bool) {
	select {
	case <-ctx.Done():
		return nil, false
	case <-q.queued:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	_, e, _ := q.queue.Pop(nil)
	return e, true
}
