package onedefault

import (
	"cmp"
	"slices"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// Op is an operation that an Attempt needs.
type Op struct {
	Kind OpKind
	Seat inventory.Seat
	// Class to read.
	Class Class
	// Lease to write over its Version.
	Lease Lease

	at int // index of the seat
}

// OpKind is a kind of operation.
type OpKind int

// The kinds of operations.
const (
	ReadLease OpKind = iota
	ReadClass
	WriteLease
)

// Result of an operation.
type Result struct {
	// Lease or Live is what was read.
	Lease Lease
	Live  Live
	// Written reports whether the Lease had the version to write over.
	Written bool
}

// Attempt takes one request through the Leases of its seats. First it reads all of them, then all classes that may stand in the way, and
// judges. Then it writes the Leases in their order. If somebody else has written a Lease meanwhile, it begins again, and keeps what it has
// written. It reads classes always after the Leases that name them.
//
// An Attempt is a value: every method returns the changed one.
type Attempt struct {
	id      string
	request *Request
	phase   phase
	seats   []progress
	toRead  []Class
	read    []classRead
	refusal *Refusal
}

// progress at a seat.
type progress struct {
	lease Lease
	// known reports whether the lease was read, and not written since.
	known bool
	// wrote reports whether the Lease may record the attempt's write.
	wrote bool
	// toWrite reports whether the attempt's write is to be recorded beside those inFlight, which are of the same class.
	toWrite  bool
	inFlight []Pending
}

type classRead struct {
	class Class
	live  Live
}

type phase int

const (
	readingLeases phase = iota
	readingClasses
	writing
	takingOut
	done
)

// Begin an attempt. Its id must be one that no other attempt has or had.
func Begin(r *Request, id string) Attempt {
	a := Attempt{id: id, request: r, seats: make([]progress, len(r.Seats))}
	if len(r.Seats) == 0 {
		a.phase = done
	}
	return a
}

// Next returns all operations that can be done now, in any order or at once; none if the attempt is over.
func (a Attempt) Next() []Op {
	var ops []Op
	for _, c := range a.toRead {
		ops = append(ops, Op{Kind: ReadClass, Class: c})
	}
	for i := range a.seats {
		p, op := &a.seats[i], Op{Kind: ReadLease, Seat: a.request.Seats[i], at: i}
		switch {
		case a.phase == readingLeases && !p.known, a.phase == takingOut && p.wrote && !p.known:
			ops = append(ops, op)
		case a.phase == takingOut && p.wrote:
			op.Kind, op.Lease = WriteLease, p.lease.without(a.id)
			ops = append(ops, op)
		case a.phase == writing && p.toWrite:
			op.Kind, op.Lease = WriteLease, Lease{
				Version: p.lease.Version, UID: p.lease.UID, Holder: a.request.Holder,
				Pending: append(slices.Clip(p.inFlight), Pending{ID: a.id, Base: a.request.Base}),
			}
			return []Op{op}
		}
	}
	return ops
}

// Refusal is nil if the class may become default.
func (a Attempt) Refusal() *Refusal { return a.refusal }

// Done goes on with the result of an operation.
func (a Attempt) Done(op Op, r Result) Attempt {
	a.seats = slices.Clone(a.seats)
	switch p := &a.seats[op.at]; {
	case op.Kind == ReadClass:
		a.toRead = slices.DeleteFunc(slices.Clone(a.toRead), func(c Class) bool { return c == op.Class })
		a.read = append(slices.Clip(a.read), classRead{op.Class, r.Live})
	case op.Kind == ReadLease:
		// A write whose answer was lost may have been sent twice, and refused the second time.
		p.lease, p.known, p.wrote = r.Lease, true, r.Lease.has(a.id)
	case a.phase == takingOut:
		p.known, p.wrote = false, !r.Written
	case r.Written:
		p.known, p.wrote, p.toWrite = false, true, false
	default:
		a.phase = readingLeases
		for i := range a.seats {
			a.seats[i].known, a.seats[i].toWrite = false, false
		}
	}
	return a.next()
}

// next goes to the next phase if this one is over.
func (a Attempt) next() Attempt {
	if len(a.Next()) > 0 {
		return a
	}
	switch a.phase {
	case readingLeases:
		a.phase, a.read, a.toRead = readingClasses, nil, []Class{a.request.Class}
		for i := range a.seats {
			for _, c := range a.inTheWay(i) {
				if !slices.Contains(a.toRead, c) {
					a.toRead = append(a.toRead, c)
				}
			}
		}
		return a
	case readingClasses:
		return a.judge()
	default:
		a.phase = done
		return a
	}
}

// inTheWay are the classes that may be the default of a seat: those known to be, and the one that its Lease names.
func (a Attempt) inTheWay(at int) []Class {
	classes := a.request.Known[a.request.Seats[at]]
	if l := &a.seats[at].lease; len(l.Pending) > 0 {
		classes = append(slices.Clip(classes), l.Holder.Class)
	}
	return classes
}

func (a Attempt) live(c Class) Live {
	i := slices.IndexFunc(a.read, func(r classRead) bool { return r.class == c })
	return a.read[i].live
}

// judge what was read: the request's own class first, then its seats.
func (a Attempt) judge() Attempt {
	own := a.live(a.request.Class)
	switch {
	case a.request.Base == "" && own.UID != "":
		return a.refuse(&Refusal{Reason: Exists, Class: a.request.Class})
	case a.request.Base != "" && (own.UID != a.request.UID || own.Version != a.request.Base):
		return a.refuse(&Refusal{Reason: Changed, Class: a.request.Class})
	}
	var refusal *Refusal
	for i := range a.seats {
		// Where the class is default already, to drop the write that made it so would free the Lease.
		if slices.Contains(own.Seats, a.request.Seats[i]) {
			continue
		}
		if r := a.judgeSeat(i); r != nil && (refusal == nil || r.Reason == Taken) { // That does not pass by waiting.
			refusal = r
		}
		a.seats[i].toWrite = !a.seats[i].wrote && !a.request.DryRun
	}
	if refusal != nil {
		return a.refuse(refusal)
	}
	a.phase = writing
	return a.next()
}

// judgeSeat by the rules in the package comment.
func (a Attempt) judgeSeat(at int) *Refusal {
	seat, lease := a.request.Seats[at], &a.seats[at].lease
	for _, c := range a.inTheWay(at) {
		if c != a.request.Class && slices.Contains(a.live(c).Seats, seat) {
			return &Refusal{Reason: Taken, Seat: seat, Class: c}
		}
	}
	var pending []Pending
	if len(lease.Pending) > 0 {
		pending = slices.DeleteFunc(lease.inFlight(a.live(lease.Holder.Class)), func(p Pending) bool { return p.ID == a.id })
	}
	soonest := func(p, q Pending) int { return cmp.Compare(p.Left, q.Left) }
	refusal := &Refusal{Reason: InFlight, Seat: seat, Class: lease.Holder.Class}
	switch {
	case lease.Holder != a.request.Holder && len(pending) > 0:
		refusal.RetryAfter = slices.MaxFunc(pending, soonest).Left
	case len(pending) == v1beta1.MaxPendingDefaults:
		refusal.RetryAfter = slices.MinFunc(pending, soonest).Left
	default:
		a.seats[at].inFlight = pending
		return nil
	}
	return refusal
}

// Abandon an attempt that cannot go on. Its last write may have succeeded.
func (a Attempt) Abandon() Attempt {
	if a.phase == takingOut || a.phase == done {
		return a
	}
	a.seats = slices.Clone(a.seats)
	if a.phase == writing {
		p := &a.seats[a.Next()[0].at]
		p.known, p.wrote = false, true
	}
	return a.takeOut()
}

func (a Attempt) refuse(r *Refusal) Attempt {
	a.refusal = r
	return a.takeOut()
}

// takeOut what was written.
func (a Attempt) takeOut() Attempt {
	a.phase, a.toRead = takingOut, nil
	return a.next()
}

// Request asks that a class may become default. None of it is trusted: a review can be forged.
type Request struct {
	Holder
	// Base is the resourceVersion of the object to update; empty for a creation.
	Base string
	// Seats that the class is to take, each once, in the same order for all requests. It may have some of them already.
	Seats []inventory.Seat
	// Known defaults of each seat, which may be older than any Lease. A class that is no longer default does no harm.
	Known map[inventory.Seat][]Class
	// DryRun writes nothing.
	DryRun bool
}

// Refusal says what stands in the way.
type Refusal struct {
	Reason Reason
	// Seat that is taken, and the class that has it. If the reason is the request's own class, there is no seat.
	Seat  inventory.Seat
	Class Class
	// RetryAfter is how long a write may yet be InFlight.
	RetryAfter time.Duration
}

// Reason of a refusal.
type Reason int

// The reasons.
const (
	// Taken means that another class is default.
	Taken Reason = iota
	// InFlight means that a write may yet make a class default.
	InFlight
	// Exists means that the class to create exists already.
	Exists
	// Changed means that the class to update has changed or is gone.
	Changed
)
