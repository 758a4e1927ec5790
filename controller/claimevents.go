package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/util/flowcontrol"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

const (
	// eventsAhead of those that have been created; beyond, those that say to which
	// class a claim was bound are left out, and those that say why it waits have to.
	eventsAhead = 20_000
	// eventTimeout is for the creation of one.
	eventTimeout = 10 * time.Second
	// longestNote that the API server takes, in bytes.
	longestNote = 1024
)

// Events on claims. Each has a name that is made of what it says of which claim:
// the API server itself refuses to have it twice, whichever leader says it, for
// as long as it keeps events (an hour, unless told otherwise). client-go's
// recorders know only of what they themselves have said, and drop events when
// they are in a hurry.
type Events struct {
	client   eventsclient.EventsV1Interface
	instance string
	ahead    chan eventAhead
}

// eventAhead is to be created. A claim that failed to be told something is told again.
type eventAhead struct {
	*eventsv1.Event
	failed func()
}

// NewEvents by this instance of classbind.
func NewEvents(client eventsclient.EventsV1Interface, instance string) Events {
	return Events{client: client, instance: instance, ahead: make(chan eventAhead, eventsAhead)}
}

// run creates the events until the context ends: in the background, because a
// claim that is bound should not wait for the news of another.
func (e Events) run(ctx context.Context, limiter flowcontrol.RateLimiter) {
	for limiter.Wait(ctx) == nil {
		select {
		case <-ctx.Done():
			return
		case event := <-e.ahead:
			e.create(ctx, event)
		}
	}
}

func (e Events) create(ctx context.Context, event eventAhead) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_, err := e.client.Events(event.Namespace).Create(ctx, event.Event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		event.failed()
		logf.FromContext(ctx).V(1).Info("Cannot create an event", "reason", event.Reason, "claim", event.Regarding.Name, "because", err.Error())
	}
}

// bound says to which class a claim was.
func (e Events) bound(w *claimWatch, claim waitingAttempt, version string, d selector.Decision) {
	event := e.event(w, claim, corev1.EventTypeNormal, v1alpha1.EventBoundToClass, fmt.Sprintf("bound to %s, of %d candidates", d.Class, d.Candidates))
	event.Name += "." + version
	select {
	case e.ahead <- eventAhead{event, func() {}}:
	default:
	}
}

// tell the claims that have waited for a while that there is no class for them, each once.
func (e Events) tell(ctx context.Context, w *claimWatch, view *selector.View, now time.Time) {
	for ctx.Err() == nil {
		claim, problem, ok := w.stays(now, len(e.ahead) < cap(e.ahead)/2)
		if !ok {
			return
		}
		note := problem
		if note == "" {
			d := view.Choose(selector.Claim{Namespace: claim.namespace, Name: claim.name, Selector: claim.selector}, 0)
			if d.Class != nil { // It has not been given out yet, and may not be there any more then.
				w.untell(claim, now)
				continue
			}
			note = d.Warning()
		}
		event := e.event(w, claim, corev1.EventTypeWarning, v1alpha1.EventNoMatchingClass, note)
		select {
		case e.ahead <- eventAhead{event, func() { w.untell(claim, time.Now()) }}:
		case <-ctx.Done():
			w.untell(claim, now)
		}
	}
}

// untell a claim what it has not been told, to tell it after a while.
func (w *claimWatch) untell(claim waitingAttempt, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiting[claim.uid]; c != nil && w.binder != nil {
		c.told = false
		w.untold = append(w.untold, untold{c, now})
	}
}

// stays is a claim that has waited long enough to be told, once.
func (w *claimWatch) stays(now time.Time, room bool) (claim waitingAttempt, problem string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for room && len(w.untold) > 0 && now.Sub(w.untold[0].since) >= stayGrace {
		c := w.untold[0].claim
		w.untold[0].claim = nil
		w.untold = w.untold[1:]
		if w.waiting[c.uid] != c || c.told || c.group.matched || c.written {
			continue
		}
		if !c.namespace.bound {
			if !c.namespace.asked {
				w.untold = append(w.untold, untold{c, now})
			}
			continue
		}
		c.told = true
		return waitingAttempt{uid: c.uid, namespace: c.namespace.name, name: c.name, version: c.version, selector: c.group.selector}, c.group.problem, true
	}
	return waitingAttempt{}, "", false
}

func (e Events) event(w *claimWatch, claim waitingAttempt, kind, reason, note string) *eventsv1.Event {
	namespace := claim.namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // Events on what has no namespace are there.
	}
	now := metav1.NowMicro()
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: eventName(claim.uid, reason)},
		EventTime:           now,
		ReportingController: v1alpha1.EventController,
		ReportingInstance:   e.instance,
		Type:                kind, Reason: reason, Action: "Bind",
		Note: strings.ToValidUTF8(note[:min(len(note), longestNote)], ""),
		Regarding: corev1.ObjectReference{
			APIVersion: w.resource.GroupVersion().String(), Kind: w.objectKind,
			Namespace: claim.namespace, Name: claim.name, UID: claim.uid, ResourceVersion: claim.version,
		},
	}
}

func eventName(claim types.UID, reason string) string {
	return strings.ToLower(reason) + "." + string(claim)
}
