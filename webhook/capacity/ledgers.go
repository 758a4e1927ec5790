package capacity

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// changeTimeout limits one round of changes of a ledger.
	changeTimeout = 3 * time.Second
	// settling is how long after a ledger was filled a claim may still have been given the class by a replica that did not know: it is told
	// to try again, and is then given another.
	settling = 5 * time.Second
)

// ErrCrowded says that too many claims wait for one ledger.
var ErrCrowded = errors.New("too many claims wait for one class")

// Ledgers are those of all classes, as this replica knows them. It changes one by compare-and-swap: all claims that wait for a ledger by
// one write.
type Ledgers struct {
	// Client writes, and Live reads what is stored.
	Client client.Client
	Live   client.Reader
	// Namespace has the ledgers: it is classbind's own.
	Namespace string

	known sync.Map // *entry by name, written under mu
	freed atomic.Uint64

	mu     sync.Mutex // guards all below
	queues map[string][]*change
}

// entry is a ledger as it was last seen. It is not changed.
type entry struct {
	object *v1beta1.Ledger
	*Ledger
	reserved int64
	// filled is when this replica first saw it so full.
	filled time.Time
}

// change of a ledger.
type change struct {
	// apply reports whether it changed the ledger, which it may be asked again for a newer one.
	apply func(*Ledger) bool
	done  chan error
}

// Listed are ledgers as they were listed, for their Room alone.
func Listed(all []v1beta1.Ledger) *Ledgers {
	l := &Ledgers{}
	for i := range all {
		l.see(&all[i])
	}
	return l
}

// Has reports whether the ledger of a class is known.
func (l *Ledgers) Has(c *inventory.Class) bool { return l.load(nameOf(c)) != nil }

// Watch the ledgers until the context ends.
func (l *Ledgers) Watch(ctx context.Context, c cache.Cache) error {
	informer, err := c.GetInformer(ctx, &v1beta1.Ledger{})
	if err != nil {
		return fmt.Errorf("cannot watch ledgers: %w", err)
	}
	see := func(object any) {
		if o, ok := object.(*v1beta1.Ledger); ok && o.Namespace == l.Namespace {
			l.see(o)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: func(object any) {
			if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if o, ok := object.(*v1beta1.Ledger); ok {
				l.forget(o)
			}
		},
	})
	return err
}

// see a ledger, unless it is known so, or newer.
func (l *Ledgers) see(o *v1beta1.Ledger) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.load(o.Name)
	if old != nil && versionOf(o) <= versionOf(old.object) {
		return old
	}
	e := &entry{object: o, Ledger: decode(o)}
	e.reserved = sum(e.Reservations, nil)
	if old != nil {
		if e.filled = old.filled; e.Used+e.reserved != old.Used+old.reserved {
			e.filled = time.Now()
		}
		if e.Used+e.reserved < old.Used+old.reserved || e.Limits != old.Limits || e.Open != old.Open {
			l.freed.Add(1)
		}
	}
	l.known.Store(o.Name, e)
	return e
}

func versionOf(o *v1beta1.Ledger) uint64 {
	version, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	return version
}

func (l *Ledgers) forget(o *v1beta1.Ledger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.load(o.Name); before != nil && before.object.UID == o.UID {
		l.known.Delete(o.Name)
	}
}

func (l *Ledgers) load(name string) *entry {
	if e, known := l.known.Load(name); known {
		return e.(*entry) //nolint:forcetypeassert // It has nothing else.
	}
	return nil
}

// Room of a class for a claim of a namespace, as this replica knows it.
func (l *Ledgers) Room(namespace string, c *inventory.Class) selector.Room {
	e := l.load(nameOf(c))
	if e == nil || !e.Open {
		return selector.Room{Closed: (&Refusal{Reason: Closed}).Error()}
	}
	room := selector.Room{Used: e.Used, Reserved: e.reserved}
	if e.Limits.PerNamespace != inventory.Unlimited {
		room.NamespaceUsed, room.NamespaceReserved = e.Namespaces[namespace], sum(e.Reservations, &namespace)
	}
	return room
}

// Freed is another number once there may be more room.
func (l *Ledgers) Freed() uint64 { return l.freed.Load() }

// Reserve room for a write of a claim, or say why there is none. A dry run reserves nothing.
func (l *Ledgers) Reserve(
	ctx context.Context, c *inventory.Class, w selector.Write, amount int64, dryRun bool,
) (refusal *Refusal, err error) {
	name, limits := nameOf(c), LimitsOf(c)
	var last *Refusal // A change that nobody waits for any more writes to it.
	err = l.change(ctx, name, func(ledger *Ledger) bool {
		// A lower limit is in force at once: there may be no leader who writes it. A higher one waits for the leader.
		ledger.Limits = Limits{min(ledger.Limits.Total, limits.Total), min(ledger.Limits.PerNamespace, limits.PerNamespace)}
		if dryRun {
			trial := *ledger
			last = trial.Reserve(w, amount)
			return false
		}
		last = ledger.Reserve(w, amount)
		return last == nil
	})
	if err != nil || last == nil {
		return nil, err
	}
	if e := l.load(name); last.Reason == Full && e != nil && (time.Since(e.filled) < settling || limits != e.Limits) {
		last.Reason = InFlight
	}
	return last, nil
}

// change a ledger, together with others who do. It returns when it is written, or need not be.
func (l *Ledgers) change(ctx context.Context, name string, apply func(*Ledger) bool) error {
	c := &change{apply, make(chan error, 1)}
	l.mu.Lock()
	waiting, writing := l.queues[name]
	crowded := len(waiting) >= v1beta1.MaxWaitingReservations
	if !crowded {
		if l.queues == nil {
			l.queues = map[string][]*change{}
		}
		l.queues[name] = append(waiting, c)
	}
	l.mu.Unlock()
	if crowded {
		return ErrCrowded
	}
	if !writing {
		go l.write(name) //nolint:gosec,contextcheck // It writes for others, too, and has a deadline of its own.
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write what waits for a ledger, until nothing does.
func (l *Ledgers) write(name string) {
	for {
		l.mu.Lock()
		changes := l.queues[name]
		if len(changes) == 0 {
			delete(l.queues, name)
			l.mu.Unlock()
			return
		}
		l.queues[name] = []*change{} // It says that somebody writes.
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
		err := l.writeAll(ctx, name, changes)
		cancel()
		for _, c := range changes {
			c.done <- err
		}
	}
}

// writeAll changes by one write. What is known may be old, so whoever is refused by it is judged by what is stored.
func (l *Ledgers) writeAll(ctx context.Context, name string, changes []*change) error {
	e, err := l.load(name), error(nil)
	for live := false; ; live = true {
		if live || e == nil {
			if e, err = l.read(ctx, name); err != nil {
				return err
			}
			live = true
		}
		next := *e.Ledger
		changed, all := false, true
		for _, c := range changes {
			is := c.apply(&next)
			changed, all = changed || is, all && is
		}
		if !all && !live {
			continue
		}
		if !changed || e.Version == "" {
			return nil
		}
		o := encode(&next, e.object)
		err = l.Client.Update(ctx, o)
		switch {
		case err == nil:
			l.see(o)
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) || ctx.Err() != nil:
			return fmt.Errorf("cannot write the ledger %s: %w", name, truncate.Error(err))
		}
	}
}

// read a ledger as it is stored. One that is not there is closed.
func (l *Ledgers) read(ctx context.Context, name string) (*entry, error) {
	o := &v1beta1.Ledger{}
	err := l.Live.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: name}, o)
	switch {
	case apierrors.IsNotFound(err):
		return &entry{object: o, Ledger: &Ledger{}}, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the ledger %s: %w", name, truncate.Error(err))
	}
	return l.see(o), nil
}

// create the ledger of a class, which is closed.
func (l *Ledgers) create(ctx context.Context, c *inventory.Class) error {
	o := &v1beta1.Ledger{Spec: v1beta1.LedgerSpec{Class: titleOf(c)}}
	o.Namespace, o.Name = l.Namespace, nameOf(c)
	err := l.Client.Create(ctx, o)
	switch {
	case err == nil:
		l.see(o)
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("cannot create the ledger of %s: %w", c, truncate.Error(err))
	}
	return nil
}

// newCount of a class.
func newCount(c *inventory.Class, usage selector.Usage) *Count {
	count := &Count{Usage: usage, Limits: LimitsOf(c)}
	if count.Limits.PerNamespace == inventory.Unlimited {
		count.Namespaces = nil
	}
	return count
}

// recount the claims of a class.
func (l *Ledgers) recount(ctx context.Context, c *inventory.Class, count *Count) error {
	return l.change(ctx, nameOf(c), func(ledger *Ledger) bool { return ledger.Recount(count) })
}

// Open the ledger of a class of which claims use so much. They must have been listed when no write without a reservation could be in
// flight.
func (l *Ledgers) Open(ctx context.Context, c *inventory.Class, usage selector.Usage) error {
	count := newCount(c, usage)
	count.Complete = true
	if l.load(nameOf(c)) == nil {
		if err := l.create(ctx, c); err != nil {
			return err
		}
	}
	return l.recount(ctx, c, count)
}
