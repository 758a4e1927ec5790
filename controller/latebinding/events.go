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
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/util/flowcontrol"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
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
		_ = loop.Recovered(func() error { e.create(ctx, event); return nil })
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

// warnOnce queues a warning about a claim that waits, unless it got one. If there is no place for it, or it cannot be created, the
// claim may get one later.
func (e Events) warnOnce(w *claimWatch, claim waitingAttempt, reason, note string) {
	news := false
	w.own(func(s *claimState) {
		if c := s.waiting[claim.uid]; c != nil {
			news, c.notified = !c.notified, true
		}
	})
	uid := claim.uid // The event does not hold what the claim asks for, which may be long.
	failed := func() { w.noticeLater(uid) }
	if news && !e.queue.push(&queuedEvent{e.event(w, claim, reason, note), failed}, v1beta1.LateEvents/2) {
		failed()
	}
}

// notifyWaiting queues one event for each of these claims that matches no class. It handles at least one claim, even if the context
// has ended: the next round has the rest.
func (e Events) notifyWaiting(ctx context.Context, w *claimWatch, view *selector.View, claims []waitingItem) {
	for i, item := range claims {
		if i > 0 && ctx.Err() != nil {
			return
		}
		if !e.queue.hasPlace(item.namespace, v1beta1.LateEvents/2) {
			continue
		}
		var claim waitingAttempt
		w.own(func(s *claimState) {
			if c := s.waiting[item.uid]; c != nil {
				claim = c.attempt()
			}
		})
		if note, waits := claim.note(ctx, view); waits {
			e.warnOnce(w, claim, v1beta1.EventNoMatchingClass, note)
		} else { // It is about to be bound, unless the class goes before that, or not to be bound yet.
			w.noticeLater(item.uid)
		}
	}
}

// noticeLater has a claim wait for its event again.
func (w *claimWatch) noticeLater(uid types.UID) {
	w.own(func(s *claimState) {
		if c := s.waiting[uid]; c != nil {
			c.notified, c.since = false, time.Now()
		}
	})
}

// note says why a claim waits for a class. waits is false if it has one now, or is not to be bound yet.
func (a waitingAttempt) note(ctx context.Context, view *selector.View) (note string, waits bool) {
	if problem := a.ask.Problem(); problem != "" || a.unread {
		return cmp.Or(problem, noteOverflow), true
	}
	err := loop.Recovered(func() error {
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
