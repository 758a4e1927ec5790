package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
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
	// lateWorkers write claims of one kind at once: a kind whose writes hang delays
	// no other.
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
	// writers of the claims of each kind that is bound later. The rounds alone have them.
	writers map[*claimWatch]*lateWriter
	running *sync.WaitGroup
}

// Start returns when the leadership ends.
func (b *LateBinder) Start(ctx context.Context) error {
	b.limiter = flowcontrol.NewTokenBucketRateLimiter(float32(b.Rate), 2*b.Rate)
	b.writers, b.running = map[*claimWatch]*lateWriter{}, &sync.WaitGroup{}
	defer func() {
		b.employ(ctx, nil)
		b.running.Wait()
		// The watches outlive the term by as much as it takes to see that it is over.
		b.Claims.resign(context.WithoutCancel(ctx), b)
	}()
	if err := b.Claims.lead(ctx, b); err != nil {
		return err
	}
	events := flowcontrol.NewTokenBucketRateLimiter(float32(b.Rate), 2*b.Rate)
	for range eventWorkers {
		b.running.Go(func() { b.Events.run(ctx, events) })
	}
	round := 0
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		b.unreadable = nil
		watches := b.Claims.lateWatches()
		b.employ(ctx, watches)
		for _, w := range watches {
			_ = recovered(func() error {
				b.round(ctx, w, round%namespaceRounds == 0, lateAsking/time.Duration(len(watches)))
				return nil
			})
		}
		round++
	}, cmp.Or(b.interval, lateRound))
	return nil
}

// employ a writer for each watch, and no others.
func (b *LateBinder) employ(ctx context.Context, watches []*claimWatch) {
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
	due, cancel := context.WithTimeout(ctx, asking*3/4)
	defer cancel()
	for _, item := range w.due(due, view) {
		b.writers[w].queue.Add(item)
	}
	// To tell has time of its own: there may always be groups that are left to be asked.
	tell, cancel := context.WithTimeout(ctx, asking/4)
	defer cancel()
	b.Events.tell(tell, w, view, time.Now())
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
	return err == nil && w.namespaces.Select(name, n.Labels), nil
}

func (c *Claims) leading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.binder != nil
}

// lead has the claims watched that are bound later.
func (c *Claims) lead(ctx context.Context, b *LateBinder) error {
	c.mu.Lock()
	c.binder = b
	c.mu.Unlock()
	return c.lookAtAll(ctx)
}

// resign has them watched no more, unless the next term has begun: that does not
// wait for the end of this one.
func (c *Claims) resign(ctx context.Context, b *LateBinder) {
	c.mu.Lock()
	last := c.binder == b
	if last {
		c.binder = nil
	}
	c.mu.Unlock()
	for _, w := range c.watches() {
		w.dismiss(b)
	}
	if !last {
		return
	}
	if err := c.lookAtAll(ctx); err != nil {
		logf.FromContext(ctx).Info("Goes on watching claims that it does not bind", "because", err.Error())
	}
}

func (c *Claims) lookAtAll(ctx context.Context) error {
	kinds := &v1alpha1.ClaimKindList{}
	if err := c.registration.reader.List(ctx, kinds); err != nil {
		return fmt.Errorf("cannot list claim kinds: %w", err)
	}
	for i := range kinds.Items {
		c.lookAt(kinds.Items[i].Name)
	}
	return nil
}
