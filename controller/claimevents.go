package controller

import (
	"cmp"
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
	"github.com/classbind/classbind/selector/brief"
)

const (
	// eventTimeout is for the creation of one.
	eventTimeout = 10 * time.Second
	// longestNote that the API server takes, in bytes.
	longestNote = 1024
	// noteBeyond is for claims that wait without their selectors.
	noteBeyond = "so many claims of this namespace wait with selectors of their own that classbind does not keep this one's: it reads the claim again from time to time, and binds it when a class matches"
)

// Events on claims. Each has a name that is made of what it says of which claim:
// the API server itself refuses to have it twice, whichever leader says it, for
// as long as it keeps events (an hour, unless told otherwise). client-go's
// recorders know only of what they themselves have said, and drop events when
// they are in a hurry.
type Events struct {
	client   eventsclient.EventsV1Interface
	instance string
	ahead    *shared[*eventAhead]
}

// eventAhead is to be created. A claim that failed to be told something is told again.
type eventAhead struct {
	watch              *claimWatch
	claim              waitingAttempt
	kind, reason, note string
	suffix             string
	failed             func()
}

// NewEvents by this instance of classbind.
func NewEvents(client eventsclient.EventsV1Interface, instance string) Events {
	return Events{client: client, instance: instance, ahead: newShared(v1alpha1.LateEvents, func(e *eventAhead) string { return e.claim.namespace })}
}

// run creates the events until the context ends: in the background, because a
// claim that is bound should not wait for the news of another.
func (e Events) run(ctx context.Context, limiter flowcontrol.RateLimiter) {
	for limiter.Wait(ctx) == nil {
		event, ok := e.ahead.pop(ctx)
		if !ok {
			return
		}
		_ = recovered(func() error { e.create(ctx, event); return nil })
	}
}

func (e Events) create(ctx context.Context, ahead *eventAhead) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	event := e.event(ahead)
	_, err := e.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		ahead.failed()
		logf.FromContext(ctx).V(1).Info("Cannot create an event", "reason", event.Reason, "claim", event.Regarding.Name, "because", brief.Error(err).Error())
	}
}

// bound says to which class a claim was. Where too much is to be said, it is not.
func (e Events) bound(w *claimWatch, claim waitingAttempt, version string, d selector.Decision) {
	e.ahead.push(&eventAhead{
		watch: w, claim: claim, kind: corev1.EventTypeNormal, reason: v1alpha1.EventBoundToClass, suffix: "." + version,
		note: fmt.Sprintf("bound to %s, of %d candidates", d.Class, d.Candidates), failed: func() {},
	}, v1alpha1.LateEvents)
}

// tell the claims that have waited for a while that there is no class for them,
// each once, and in turns over their namespaces. When the context ends, it has told
// one at least, and what is left is for the next time.
func (e Events) tell(ctx context.Context, w *claimWatch, view *selector.View, now time.Time) {
	place := func(namespace string) bool { return e.ahead.hasPlace(namespace, v1alpha1.LateEvents/2) }
	for {
		claims := w.stay(now, place)
		for i, claim := range claims {
			if i > 0 && ctx.Err() != nil {
				w.untell(claim, now.Add(-stayGrace)) // It has waited long enough.
				continue
			}
			note, matched := claim.note(view)
			if matched { // It has not been given out yet, and may not be there any more then.
				w.untell(claim, now)
				continue
			}
			claim.ask = "" // It may be long, and has been read.
			told := e.ahead.push(&eventAhead{
				watch: w, claim: claim, kind: corev1.EventTypeWarning, reason: v1alpha1.EventNoMatchingClass, note: note,
				failed: func() { w.untell(claim, time.Now()) },
			}, v1alpha1.LateEvents/2)
			if !told {
				w.untell(claim, now)
			}
		}
		if len(claims) == 0 || ctx.Err() != nil {
			return
		}
	}
}

// note why a claim waits, or that it does not have to.
func (a waitingAttempt) note(view *selector.View) (note string, matched bool) {
	if problem := a.ask.Problem(); problem != "" || a.unread {
		return cmp.Or(problem, noteBeyond), false
	}
	err := recovered(func() error {
		claim, err := a.ask.Claim(a.namespace, a.name)
		if err == nil {
			d := view.Choose(claim, 0)
			note, matched = d.Warning(), d.Class != nil
		}
		return err
	})
	if err != nil {
		return textFor(err), false
	}
	return strings.Clone(brief.Text(note, longestNote)), matched
}

// untell a claim what it has not been told, to tell it after a while.
func (w *claimWatch) untell(claim waitingAttempt, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiting[claim.uid]; c != nil && w.binder != nil {
		c.told = false
		c.wait(now)
	}
}

// stay are claims that have waited long enough to be told, one of each namespace
// that has a place for its event.
func (w *claimWatch) stay(now time.Time, place func(namespace string) bool) (claims []waitingAttempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, n := range w.room.namespaces {
		if c := n.stays(now); c != nil && place(name) {
			n.dequeue(lineUntold)
			c.told = true
			claims = append(claims, c.attempt())
		}
	}
	return claims
}

// stays is the claim of a namespace that is to be told next, nil if it is too early.
func (n *namespace) stays(now time.Time) *waitingClaim {
	for c := n.first(lineUntold); c != nil; c = n.first(lineUntold) {
		switch {
		case !n.bound && !n.asked, now.Sub(time.Unix(0, c.since)) < stayGrace:
			return nil
		case n.bound && !c.told && !c.group.matched && !c.written:
			return c
		}
		n.dequeue(lineUntold)
	}
	return nil
}

func (e Events) event(a *eventAhead) *eventsv1.Event {
	w, claim := a.watch, a.claim
	namespace := claim.namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // Events on what has no namespace are there.
	}
	now := metav1.NowMicro()
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: eventName(claim.uid, a.reason) + a.suffix},
		EventTime:           now,
		ReportingController: v1alpha1.EventController,
		ReportingInstance:   e.instance,
		Type:                a.kind, Reason: a.reason, Action: "Bind",
		Note: brief.Text(a.note, longestNote),
		Regarding: corev1.ObjectReference{
			APIVersion: w.resource.GroupVersion().String(), Kind: w.objectKind,
			Namespace: claim.namespace, Name: claim.name, UID: claim.uid, ResourceVersion: claim.version,
		},
	}
}

func eventName(claim types.UID, reason string) string {
	return strings.ToLower(reason) + "." + string(claim)
}
