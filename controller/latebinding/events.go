package latebinding

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	eventTimeout = 10 * time.Second // of the creation of one event
	longestNote  = 1024             // the longest note that the API server accepts, in bytes
)

// eventSink creates the events of a recorder. It never touches one again.
type eventSink func(*corev1.Event)

// Create is called by the recorder.
func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	s(e)
	return e, nil
}

// Update is never called.
func (s eventSink) Update(e *corev1.Event) (*corev1.Event, error) { return e, nil }

// Patch would count an event that was there already.
func (s eventSink) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) { return s.Create(e) }

// newRecorder returns a recorder of events on the claims of a kind, until the context ends. It holds a thousand at most, and drops what is
// more, so each kind has its own. The name of an event is made of its reason and its claim: the API server refuses a second one, whichever
// leader sends it, for as long as it keeps events (an hour by default).
func (b *Binder) newRecorder(ctx context.Context, w *claimWatch) record.EventRecorder {
	options := record.CorrelatorOptions{LRUCacheSize: v1beta1.LateEvents}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(options))
	broadcaster.StartRecordingToSink(eventSink(func(e *corev1.Event) {
		_ = recovered.Do(func() error { b.create(ctx, w, e); return nil })
	}))
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: v1beta1.EventController, Host: b.Instance})
}

func (b *Binder) create(ctx context.Context, w *claimWatch, e *corev1.Event) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	claim := e.InvolvedObject
	e.Name = strings.ToLower(e.Reason) + "." + string(claim.UID) + "." + w.kind.Name
	if e.Reason == v1beta1.EventBoundToClass {
		e.Name += "." + claim.ResourceVersion
	}
	_, err := b.Events.Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // One that says why a claim waits is sent again.
		logf.FromContext(ctx).V(1).Info("Cannot create an event",
			"reason", e.Reason, "claim", claim.Name, "because", truncate.Error(err).Error())
		return
	}
	w.own(func(s *claimState) {
		if c := s.waiting.find(claim.Namespace, claim.UID); c != nil && e.Type == corev1.EventTypeWarning {
			c.notified, c.warned = true, c.warned || e.Reason != v1beta1.EventNoMatchingClass
		}
	})
}

func (k *kindBinder) bound(claim seenVersion, d *selector.Decision) {
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
	k.event(claim, corev1.EventTypeNormal, v1beta1.EventBoundToClass, note)
}

// warn of a claim that has no class, or of one that has one in vain, which may have waited for it before. Once the event is created, it is
// not sent again.
func (k *kindBinder) warn(claim seenVersion, reason, note string) {
	warned := true
	k.watch.own(func(s *claimState) {
		if c := s.waiting.find(claim.namespace, claim.uid); c != nil {
			warned = c.warned || c.notified && reason == v1beta1.EventNoMatchingClass
		}
	})
	if !warned {
		k.event(claim, corev1.EventTypeWarning, reason, note)
	}
}

// notify the authors of claims that have waited for noticeDelay, and have no class. Namespaces take turns.
func (k *kindBinder) notify(ctx context.Context, view *selector.View, now time.Time) {
	for time.Since(now) < noticeTime && k.binder.notices.TryAccept() {
		var claim seenVersion
		found := false
		if k.watch.own(func(s *claimState) { claim, found = s.waiting.takeUnnotified(now) }); !found {
			return
		}
		note, waits := claim.note(ctx, view)
		if !waits { // The next round sees it, too.
			continue
		}
		k.warn(claim, v1beta1.EventNoMatchingClass, note)
		k.watch.own(func(s *claimState) { // Until the event is created.
			if c := s.waiting.find(claim.namespace, claim.uid); c != nil {
				s.waiting.awaitNotice(c, now)
			}
		})
	}
}

// note says why a claim waits for a class. waits is false if it has one now, or is not to be bound yet.
func (a seenVersion) note(ctx context.Context, view *selector.View) (note string, waits bool) {
	if problem := a.ask.Problem(); problem != "" {
		return problem, true
	}
	err := recovered.Do(func() error {
		d, err := preview(ctx, view, a)
		note, waits = d.Warning(), d.Class == nil && d.Reason() != claim.NotYet && !d.Unneeded()
		return err
	})
	if err != nil {
		return textFor(err), true
	}
	return note, waits
}

func (k *kindBinder) event(claim seenVersion, kind, reason, note string) {
	k.recorder.Event(&corev1.ObjectReference{
		APIVersion: k.watch.resource.GroupVersion().String(), Kind: k.watch.objectKind,
		Namespace: claim.namespace, Name: claim.name, UID: claim.uid, ResourceVersion: claim.version,
	}, kind, reason, strings.Clone(truncate.String(cmp.Or(note, reason), longestNote)))
}
