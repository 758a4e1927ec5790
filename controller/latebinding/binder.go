package latebinding

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/recovered"
)

const (
	// lateRound is the time between rounds, which look for new classes. Claims draw from all classes that were created within one.
	lateRound = 500 * time.Millisecond
	lateRetry = time.Second // the delay before the first retry of a claim, which doubles until it is lateRetryMax
	// lateRetryMax is how often a claim is tried that the API server refuses for good.
	lateRetryMax = 10 * time.Minute
	// lateAsking is how long a round may look for classes, for all kinds together. The rest is left for the next round.
	lateAsking      = 100 * time.Millisecond
	namespaceRounds = 10               // how many rounds pass until namespaces are checked again
	lateWorkers     = 16               // of each kind: hanging writes delay no other kind
	eventWorkers    = 4                // which create events
	noticeDelay     = 10 * time.Second // how long a claim waits before an event says that it has no class
)

// Namespace is what is read of a namespace: its metadata, for the labels.
func Namespace() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return o
}

// Binder binds waiting claims when a class matches, and creates events that say why others still wait. It runs on the leader. It writes
// only the version of a claim that it saw without a class. If the author, another leader or a write of ours that seemed to fail was faster,
// the write fails, and the watch shows the new version.
type Binder struct {
	Claims     *Claims
	Events     Events        // on the claims
	Namespaces client.Reader // from a cache
	Rate       int           // of writes, and of events, each per second. A burst may have twice as many.
	Decider    *selector.Decider

	// interval of the rounds, and delay of the first retry. Zero means lateRound and lateRetry; only tests set them.
	interval, retry time.Duration

	unreadable error // why namespaces cannot be read, for the rest of a round
	limiter    flowcontrol.RateLimiter
	writers    map[*claimWatch]*lateWriter // of the kinds with BindLater. Only the rounds use them.
	running    *sync.WaitGroup
}

// Start binds claims until the leadership ends.
func (b *Binder) Start(ctx context.Context) error {
	b.limiter = flowcontrol.NewTokenBucketRateLimiter(float32(b.Rate), 2*b.Rate)
	b.writers, b.running = map[*claimWatch]*lateWriter{}, &sync.WaitGroup{}
	defer func() {
		b.syncWriters(ctx, nil)
		b.running.Wait()
		for _, w := range b.Claims.watches() {
			w.own(func(s *claimState) {
				if s.binder == b { // The next term may have begun: it does not wait for this.
					s.useBinder(nil, time.Time{})
				}
			})
		}
	}()
	events := flowcontrol.NewTokenBucketRateLimiter(float32(b.Rate), 2*b.Rate)
	for range eventWorkers {
		b.running.Go(func() {
			_ = recovered.Again(ctx, func(ctx context.Context) error { b.Events.run(ctx, events); return nil })
		})
	}
	round := 0
	recovered.Rounds(ctx, func(ctx context.Context) {
		b.unreadable = nil
		watches := b.Claims.lateWatches()
		b.syncWriters(ctx, watches)
		for _, w := range watches {
			_ = recovered.Do(func() error {
				b.round(ctx, w, round%namespaceRounds == 0, lateAsking/time.Duration(len(watches)))
				return nil
			})
		}
		round++
	}, cmp.Or(b.interval, lateRound))
	return nil
}

func (b *Binder) syncWriters(ctx context.Context, watches []*claimWatch) {
	for w, writer := range b.writers {
		if !slices.Contains(watches, w) {
			writer.queue.ShutDown()
			delete(b.writers, w)
		}
	}
	for _, w := range watches {
		if b.writers[w] == nil {
			b.writers[w] = b.newWriter(ctx, w)
		}
	}
}

// round queues the claims of a kind that became bindable since the last round, and
// events on those that still wait. asking is its share of lateAsking.
func (b *Binder) round(ctx context.Context, w *claimWatch, askAgain bool, asking time.Duration) {
	view, ready := b.view(w), false
	w.own(func(s *claimState) {
		s.useBinder(b, time.Now())
		if ready = view != nil && s.unwritable == nil; !ready {
			s.unmatch()
		} else if s.room.askFull(b.Claims.registration.Freed(view)) {
			s.dirty = true
		}
	})
	if !ready {
		return
	}
	w.checkNamespaces(askAgain, func(name string) (bool, error) { return b.admits(ctx, w, name) })
	due, cancel := context.WithTimeout(ctx, asking*3/4)
	defer cancel()
	for _, item := range w.due(due, view) {
		b.writers[w].queue.Add(item)
	}
	// Events have time of their own, because groups may always be left to ask about.
	tell, cancel := context.WithTimeout(ctx, asking/4)
	defer cancel()
	b.Events.notifyWaiting(tell, w, view, time.Now())
}

// preview decides on a claim from what is known, without any effect. It asks no gate:
// there is a preview for each group of claims, and gates are asked about a single claim.
func preview(ctx context.Context, view *selector.View, c claim.Claim) (selector.Decision, error) {
	return new(selector.Decider).Decide(ctx, view, claim.Intake{Claim: c}, selector.Preview)
}

// view returns the classes for a watch, nil if none fit it now.
func (b *Binder) view(w *claimWatch) *selector.View {
	view := b.Claims.registration.Inventory.Snapshot()[w.kind.Name]
	if view == nil || view.Fault != nil || view.Conflict != nil || view.Kind.Serial != w.kind.Serial {
		return nil
	}
	return view
}

// admits reports whether the ClaimKind selects a namespace by its labels. Each read of a
// cache that does not fill waits for its timeout, so a round tries only one.
func (b *Binder) admits(ctx context.Context, w *claimWatch, name string) (bool, error) {
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
	return err == nil && w.namespaces.Select(name, n.Labels), nil
}
