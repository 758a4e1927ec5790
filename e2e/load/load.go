// Package load creates claims at a steady rate, whatever becomes of them, and reports what did.
package load

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// timeout of a creation. The API server gives one up after a minute.
	timeout = 3 * time.Minute
	// page of a list, so that the API server need not have all claims in one answer.
	page = 500
	// lateness from which on a creation counts as started late: the load was not steady then.
	lateness = 100 * time.Millisecond
	// deletions of all claims that are tried at most.
	deletions = 10
)

// Options of a load.
type Options struct {
	// Client without a rate limit, and with no other use of the namespace's claims than this.
	Client client.Client
	// Kinds of the claims, in turn, and the namespace in which they are created. All of them there are deleted in the end.
	Kinds     []schema.GroupVersionKind
	Namespace string
	// Prefix of their names, before a number; empty means "load-".
	Prefix string
	// Spec of each.
	Spec map[string]any
	// Foreign reports whether a class, KIND/NAME, is one that no claim here may get; nil, there is none.
	Foreign func(class string) bool
	// PerSecond are created; 0 means 100.
	PerSecond int
}

// Load is under way until it is stopped. It is open-loop: each creation starts when it is due, however long those before it take, and its
// latency counts from then, so that a delay is seen in all that it delays.
type Load struct {
	o     Options
	stop  context.CancelFunc
	ended chan struct{}
	// underWay has room for what is due in three seconds: a machine that does less a second need not bear more and more at once.
	underWay chan struct{}

	mu        sync.Mutex
	mark      time.Time
	creations []creation
}

// creation is what became of one.
type creation struct {
	name  string
	due   time.Time
	late  time.Duration // It started so much after it was due.
	took  time.Duration // since it was due
	class string        // of the answer
	err   error

	foreign bool // The class is.
}

// Start a load. The context ends its requests, too.
func Start(ctx context.Context, o Options) *Load {
	if o.PerSecond == 0 {
		o.PerSecond = 100
	}
	if o.Prefix == "" {
		o.Prefix = "load-"
	}
	l := &Load{o: o, mark: time.Now(), ended: make(chan struct{}), underWay: make(chan struct{}, 3*o.PerSecond)}
	starting, stop := context.WithCancel(ctx)
	l.stop = stop
	go l.run(ctx, starting)
	return l
}

// Mark now as the time from which that of failures counts. It is the start until then.
func (l *Load) Mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark = time.Now()
}

// Next waits until so many more creations have been answered.
func (l *Load) Next(ctx context.Context, n int) error {
	before := l.answered()
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		return l.answered() >= before+n, nil
	})
}

func (l *Load) answered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.creations)
}

// Stop creating, wait for what was started, compare it with what is stored, and delete that.
func (l *Load) Stop(ctx context.Context) (Report, error) {
	l.stop()
	<-l.ended
	stored, err := l.stored(ctx)
	if err != nil {
		return Report{}, err
	}
	for _, kind := range l.o.Kinds {
		all := &unstructured.Unstructured{}
		all.SetGroupVersionKind(kind)
		// A call deletes what it can in its minute, where etcd may sync each, and may end in the midst of its answer.
		for try := 1; ; try++ {
			err := l.o.Client.DeleteAllOf(ctx, all, client.InNamespace(l.o.Namespace))
			if err == nil {
				break
			}
			if try == deletions || ctx.Err() != nil {
				return Report{}, fmt.Errorf("cannot delete the claims of the load: %w", err)
			}
		}
	}
	return newReport(l.creations, stored, l.mark), nil
}

// run starts creations until starting ends, and waits for them.
func (l *Load) run(ctx, starting context.Context) {
	defer close(l.ended)
	var all sync.WaitGroup
	defer all.Wait()
	begin, interval := time.Now(), time.Second/time.Duration(l.o.PerSecond)
	for i := 0; ; i++ {
		due := begin.Add(time.Duration(i) * interval)
		select {
		case <-starting.Done():
			return
		case <-time.After(time.Until(due)):
		}
		l.underWay <- struct{}{}
		all.Go(func() { l.create(ctx, l.o.Kinds[i%len(l.o.Kinds)], fmt.Sprint(l.o.Prefix, i), due) })
	}
}

func (l *Load) create(ctx context.Context, kind schema.GroupVersionKind, name string, due time.Time) {
	defer func() { <-l.underWay }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	claim := &unstructured.Unstructured{Object: map[string]any{"spec": l.o.Spec}}
	claim = claim.DeepCopy() // The answer is decoded into it.
	claim.SetGroupVersionKind(kind)
	claim.SetNamespace(l.o.Namespace)
	claim.SetName(name)
	late := time.Since(due)
	err := l.o.Client.Create(ctx, claim)
	c := creation{name: name, due: due, late: late, took: time.Since(due), err: err}
	if err == nil {
		c.class = Class(claim)
		c.foreign = l.o.Foreign != nil && l.o.Foreign(c.class)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.creations = append(l.creations, c)
}

// stored are the classes of all claims that are, by name.
func (l *Load) stored(ctx context.Context) (map[string]string, error) {
	classes := map[string]string{}
	for _, kind := range l.o.Kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		for more := true; more; more = list.GetContinue() != "" {
			err := l.o.Client.List(ctx, list, client.InNamespace(l.o.Namespace), client.Limit(page), client.Continue(list.GetContinue()))
			if err != nil {
				return nil, fmt.Errorf("cannot list the claims of the load: %w", err)
			}
			for i := range list.Items {
				classes[list.Items[i].GetName()] = Class(&list.Items[i])
			}
		}
	}
	return classes, nil
}

// Class of a claim is the KIND/NAME of the reference in its spec, or empty.
func Class(claim *unstructured.Unstructured) string {
	ref, found, _ := unstructured.NestedStringMap(claim.Object, "spec", "classRef")
	if !found {
		return ""
	}
	return strings.Join([]string{ref["kind"], ref["name"]}, "/")
}
