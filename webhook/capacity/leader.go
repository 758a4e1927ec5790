package capacity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// countInterval is the pause between two rounds.
const countInterval = time.Second

// Claims are those of all claim kinds that class kinds with a capacity serve.
type Claims interface {
	// Usage of a class as the watches show it, and which of these writes they show. known is false until all claim kinds that its kind
	// serves have been listed.
	Usage(c *inventory.Class, writes []selector.Write) (usage selector.Usage, known bool)
	// List all claims now. It returns the usage of each class.
	List(context.Context, *inventory.ClassKind) (func(*inventory.Class) selector.Usage, error)
	// Landed reads whether a write is stored. It is not, if its kind is no longer registered.
	Landed(context.Context, selector.Write) (bool, error)
}

// Leader counts the claims of the classes, and keeps a ledger for each. It is made anew for each term.
type Leader struct {
	Ledgers *Ledgers
	Claims  Claims
	// Snapshot is what is registered and known, nil before that.
	Snapshot func() selector.Snapshot
	// Asked reports whether API servers ask about all writes of claims that use more of the classes of a kind.
	Asked func(context.Context, *inventory.ClassKind) (bool, error)
	// Unknown reports whether a kind by this name has capacities that are enforced, and its classes are not known.
	Unknown func(ctx context.Context, classKind string) (bool, error)
	// Window is how long the API server may take to store what was admitted.
	Window time.Duration

	// asked is since when API servers ask about the claims of a class kind.
	asked map[string]time.Time
	// ledgers by name
	ledgers map[string]*memory
}

// memory of the ledger of a class.
type memory struct {
	// old says that a claim may be in flight without a reservation: the class was there before API servers asked, or had a ledger.
	old bool
	// closed is since when the ledger was seen closed, zero if it is open.
	closed time.Time
	// seen is when each reservation was first seen.
	seen map[Reservation]time.Time
}

// Start counts until the context ends.
func (l *Leader) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := l.round(ctx, time.Now()); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("Cannot count the claims of some classes, trying again", "because", err.Error())
		}
	}, countInterval)
	return nil
}

// of a ledger is what is remembered.
func (l *Leader) of(name string) *memory {
	if l.ledgers[name] == nil {
		l.ledgers[name] = &memory{}
	}
	return l.ledgers[name]
}

// round brings all ledgers up to date.
func (l *Leader) round(ctx context.Context, now time.Time) error {
	snapshot := l.Snapshot()
	if snapshot == nil {
		return nil
	}
	if l.ledgers == nil {
		l.asked, l.ledgers = map[string]time.Time{}, map[string]*memory{}
	}
	kinds := map[string]*inventory.Classes{}
	for _, view := range snapshot {
		for _, classes := range view.All {
			if classes.Kind.IsHard() {
				kinds[classes.Kind.Name] = classes
			}
		}
	}
	var all errgroup.Group
	all.SetLimit(v1beta1.MaxGuardCalls)
	needed := map[string]bool{}
	var failure error
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if err := l.roundOf(ctx, now, kinds[name], needed, &all); err != nil {
			failure = err
		}
	}
	maps.DeleteFunc(l.asked, func(name string, _ time.Time) bool { return kinds[name] == nil })
	if err := all.Wait(); err != nil {
		failure = err
	}
	if err := l.collect(ctx, kinds, needed); err != nil {
		failure = err
	}
	return failure
}

// roundOf the classes of a kind. Changes of ledgers go on in the group.
func (l *Leader) roundOf(
	ctx context.Context, now time.Time, classes *inventory.Classes, needed map[string]bool, all *errgroup.Group,
) error {
	kind := classes.Kind
	is, err := l.Asked(ctx, kind)
	if err != nil {
		return err
	}
	since, asked := l.asked[kind.Name]
	if !is {
		delete(l.asked, kind.Name)
	} else if !asked {
		since, l.asked[kind.Name] = now, now
		classes.Each(func(c *inventory.Class) { l.of(nameOf(c)).old = true })
	}
	var closed, due []*inventory.Class
	proven := false // An open ledger shows that API servers have asked for a whole window.
	classes.Each(func(c *inventory.Class) {
		name := nameOf(c)
		needed[name] = true
		e, m := l.Ledgers.load(name), l.of(name)
		if e != nil && e.Open {
			m.old, m.closed, proven = true, time.Time{}, true
			over := l.over(now, m, e)
			all.Go(func() error { return l.recount(ctx, c, e, over) })
			return
		}
		if m.closed.IsZero() {
			m.closed = now
		}
		if e == nil {
			all.Go(func() error { return l.Ledgers.create(ctx, c) })
			return
		}
		closed = append(closed, c)
	})
	if !is {
		return nil
	}
	waited := now.Sub(since) >= l.Window
	for _, c := range closed {
		m := l.of(nameOf(c))
		if !m.old && (waited || proven) || waited && now.Sub(m.closed) >= l.Window {
			due = append(due, c)
		}
	}
	if len(due) == 0 {
		return nil
	}
	usage, err := l.Claims.List(ctx, kind)
	if err != nil {
		return err
	}
	for _, c := range due {
		all.Go(func() error { return l.Ledgers.Open(ctx, c, usage(c)) })
	}
	return nil
}

// over are the reservations whose window is over.
func (l *Leader) over(now time.Time, m *memory, e *entry) (over []Reservation) {
	first := make(map[Reservation]time.Time, len(e.Reservations))
	for _, r := range e.Reservations {
		first[r] = now
		if when, known := m.seen[r]; known {
			first[r] = when
		}
		if now.Sub(first[r]) >= l.Window {
			over = append(over, r)
		}
	}
	m.seen = first
	return over
}

// recount the claims of a class whose ledger is open, if anything differs. It ends reservations that are over and not stored.
func (l *Leader) recount(ctx context.Context, c *inventory.Class, e *entry, over []Reservation) error {
	writes := make([]selector.Write, len(e.Reservations))
	for i, r := range e.Reservations {
		writes[i] = r.Write
	}
	usage, known := l.Claims.Usage(c, writes)
	if !known {
		return nil
	}
	count := newCount(c, usage)
	count.Ended = map[Reservation]bool{}
	over = slices.DeleteFunc(over, func(r Reservation) bool { return usage.Shown[r.Write] })
	for _, r := range over[:min(len(over), v1beta1.MaxReservationsRead)] {
		landed, err := l.Claims.Landed(ctx, r.Write)
		if err != nil {
			return err
		}
		count.Ended[r] = !landed
	}
	if trial := *e.Ledger; !trial.Recount(count) {
		return nil
	}
	return l.Ledgers.recount(ctx, c, count)
}

// collect the ledgers of classes that are gone, or have no capacity any more.
func (l *Leader) collect(ctx context.Context, kinds map[string]*inventory.Classes, needed map[string]bool) (err error) {
	l.Ledgers.known.Range(func(_, known any) bool {
		e := known.(*entry) //nolint:forcetypeassert // It has nothing else.
		if !needed[e.object.Name] {
			err = l.delete(ctx, kinds, e.object)
		}
		return err == nil
	})
	return err
}

// delete a ledger, unless the classes of its kind are not known.
func (l *Leader) delete(ctx context.Context, kinds map[string]*inventory.Classes, o *v1beta1.Ledger) error {
	kind, _, _ := strings.Cut(o.Spec.Class, "/")
	if kinds[kind] == nil {
		if unknown, err := l.Unknown(ctx, kind); unknown || err != nil {
			return err
		}
	}
	err := l.Ledgers.Client.Delete(ctx, o, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot delete the ledger %s: %w", o.Name, truncate.Error(err))
	}
	if err == nil {
		l.Ledgers.forget(o)
	}
	*l.of(o.Name) = memory{old: l.of(o.Name).old}
	return nil
}
