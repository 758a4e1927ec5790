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
	eventsclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/recovered"
)

const (
	// lateRound is the time between two looks at whether classes or claims have changed. A round has at least twice that.
	lateRound = 500 * time.Millisecond
	lateRetry = time.Second // the delay before the first retry of a claim, which doubles until it is lateRetryMax
	// lateRetryMax is how often a claim is tried that the API server refuses permanently, or to which its chooser gives no class.
	lateRetryMax    = 10 * time.Minute
	noticeTries     = 4  // how many fail until an event says why a claim waits, which has waited for longer than noticeDelay then
	namespaceRounds = 10 // how many looks pass until namespaces are checked again
	lateWorkers     = 16 // of each kind: hanging writes delay no other kind
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
	Events     eventsclient.EventsGetter // on the claims
	Instance   string                    // of classbind, which reports the events
	Namespaces client.Reader             // from a cache
	Rate       int                       // of writes, and of events, each per second. A burst may have twice as many.
	Decider    *selector.Decider

	// interval of the rounds, and delay of the first retry. Zero means lateRound and lateRetry; only tests set them.
	interval, retry time.Duration

	writes, notices flowcontrol.RateLimiter
}

// Start binds claims until the leadership ends.
func (b *Binder) Start(ctx context.Context) error {
	b.writes, b.notices = b.newLimiter(), b.newLimiter()
	var running sync.WaitGroup
	ends := map[*claimWatch]func(){} // of the kinds with BindLater
	defer func() {
		for _, end := range ends {
			end()
		}
		running.Wait()
		for _, w := range b.Claims.watches() {
			w.own(func(s *claimState) {
				if s.binder == b { // The next term may have begun: it does not wait for this.
					s.useBinder(nil)
				}
			})
		}
	}()
	recovered.Rounds(ctx, func(ctx context.Context) {
		watches := b.Claims.lateWatches()
		for w, end := range ends {
			if !slices.Contains(watches, w) {
				end()
				delete(ends, w)
			}
		}
		for _, w := range watches {
			if ends[w] == nil {
				ends[w] = b.bindAll(ctx, w, &running)
			}
		}
	}, cmp.Or(b.interval, lateRound))
	return nil
}

func (b *Binder) newLimiter() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(float32(b.Rate), 2*b.Rate)
}

// kindBinder binds the waiting claims of one kind, in goroutines of its own.
type kindBinder struct {
	binder   *Binder
	watch    *claimWatch
	interval time.Duration
	queue    workqueue.TypedDelayingInterface[waitingItem] // of claims that have a class, for the writers
	backoff  workqueue.TypedRateLimiter[waitingItem]
	// questions are decisions of a kind with a chooser, at the rate of writes: claims that wait for it cost no more CPU.
	questions flowcontrol.RateLimiter
	recorder  record.EventRecorder
	looks     int
}

// bindAll starts to bind the claims of a kind, and returns a function that ends it.
func (b *Binder) bindAll(ctx context.Context, w *claimWatch, running *sync.WaitGroup) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	k := b.newKindBinder(ctx, w)
	start := func(run func(context.Context)) {
		running.Go(func() { _ = recovered.Again(ctx, func(ctx context.Context) error { run(ctx); return nil }) })
	}
	for range lateWorkers {
		start(func(ctx context.Context) {
			for k.work(ctx) {
			}
		})
	}
	start(func(ctx context.Context) { recovered.Rounds(ctx, k.round, k.interval) })
	start(func(ctx context.Context) { recovered.Rounds(ctx, k.sweepIfDue, k.interval) })
	return func() {
		cancel()
		k.queue.ShutDown()
	}
}

func (b *Binder) newKindBinder(ctx context.Context, w *claimWatch) *kindBinder {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[waitingItem]{Queue: &fairQueue{}})
	return &kindBinder{
		binder: b, watch: w, interval: cmp.Or(b.interval, lateRound), questions: b.newLimiter(),
		backoff: newLateLimiter(cmp.Or(b.retry, lateRetry)), recorder: b.newRecorder(ctx, w),
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[waitingItem]{Queue: queue}),
	}
}

// view returns the classes for the claims, nil if none fit them now.
func (k *kindBinder) view() *selector.View {
	view := k.binder.Claims.registration.Inventory.Snapshot()[k.watch.kind.Name]
	if view == nil || view.Fault != nil || view.Conflict != nil || view.Kind.Serial != k.watch.kind.Serial {
		return nil
	}
	return view
}

// checkNamespaces asks which namespaces the ClaimKind selects by their labels. Each read of a cache that does not fill waits for its
// timeout, so a round tries only one.
func (k *kindBinder) checkNamespaces(ctx context.Context) {
	k.looks++
	k.watch.checkNamespaces(k.looks%namespaceRounds == 1, func(name string) (bool, error) { return k.admits(ctx, name) })
}

func (k *kindBinder) admits(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lateRound)
	defer cancel()
	n := Namespace()
	err := k.binder.Namespaces.Get(ctx, client.ObjectKey{Name: name}, n)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("cannot read the labels of namespaces: %w", err)
	}
	return err == nil && k.watch.namespaces.Select(name, n.Labels), nil
}
