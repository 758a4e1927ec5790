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
	// ReadLease of the seat, then call LeaseRead.
	ReadLease OpKind = iota
	// ReadClass, then call ClassRead.
	ReadClass
	// WriteLease of the seat, then call LeaseWritten.
	WriteLease
)

// Attempt takes one request through the Leases of its seats. First it reads all of them, then all classes that may stand in the way, and
// judges. Then it writes the Leases in their order. If somebody else has written a Lease meanwhile, it reads and judges that one again, and
// its classes, always after the Lease that names them.
//
// An Attempt is a value: every method returns the changed one.
type Attempt struct {
	id      string
	request *Request
	phase   phase
	at      int // index of the seat to write
	seats   []progress
	toRead  []Class
	read    []classRead
	refusal *Refusal
}

// progress at a seat.
type progress struct {
	lease                Lease
	known, judged, wrote bool
	// already says that the class is the default of this seat now, so nothing is written.
	already bool
	// inFlight are the writes of the same class that the Lease keeps.
	inFlight []Pending
	// toTakeOut says that the attempt's write is to be taken out, and reread that the Lease was read again for that.
	toTakeOut, reread bool
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
	switch a.phase {
	case readingLeases:
		for i := range a.seats {
			if !a.seats[i].known {
				ops = append(ops, a.op(ReadLease, i))
			}
		}
	case readingClasses:
		for _, c := range a.toRead {
			ops = append(ops, Op{Kind: ReadClass, Class: c})
		}
	case writing:
		op, p := a.op(WriteLease, a.at), &a.seats[a.at]
		op.Lease = Lease{
			Version: p.lease.Version, UID: p.lease.UID, Holder: a.request.Holder,
			Pending: append(slices.Clip(p.inFlight), Pending{ID: a.id, Base: a.request.Base}),
		}
		ops = append(ops, op)
	case takingOut:
		for i := range a.seats {
			switch p := &a.seats[i]; {
			case p.toTakeOut && !p.reread:
				ops = append(ops, a.op(ReadLease, i))
			case p.toTakeOut:
				op := a.op(WriteLease, i)
				op.Lease = p.lease.without(a.id)
				ops = append(ops, op)
			}
		}
	case done:
	}
	return ops
}

func (a Attempt) op(kind OpKind, at int) Op {
	return Op{Kind: kind, Seat: a.request.Seats[at], at: at}
}

// Refusal is nil if the class may become default.
func (a Attempt) Refusal() *Refusal { return a.refusal }

// LeaseRead goes on with the Lease that an operation has read.
func (a Attempt) LeaseRead(op Op, l Lease) Attempt {
	a.seats = slices.Clone(a.seats)
	p := &a.seats[op.at]
	p.lease = l
	if a.phase == takingOut {
		p.toTakeOut, p.reread = l.has(a.id), true
		return a.takenOut()
	}
	// A write whose answer was lost may have been sent twice, and refused the second time.
	p.known, p.wrote = true, l.has(a.id)
	if slices.ContainsFunc(a.seats, func(p progress) bool { return !p.known }) {
		return a
	}
	a.phase, a.read, a.toRead = readingClasses, nil, []Class{a.request.Class}
	for i := range a.seats {
		if a.seats[i].judged {
			continue
		}
		for _, c := range a.inTheWay(i) {
			if !slices.Contains(a.toRead, c) {
				a.toRead = append(a.toRead, c)
			}
		}
	}
	return a
}

// inTheWay are the classes that may be the default of a seat: those known to be, and the one that its Lease names.
func (a Attempt) inTheWay(at int) []Class {
	classes := a.request.Known[a.request.Seats[at]]
	if l := &a.seats[at].lease; len(l.Pending) > 0 {
		classes = append(slices.Clip(classes), l.Holder.Class)
	}
	return classes
}

// ClassRead goes on with the class that an operation has read.
func (a Attempt) ClassRead(op Op, live Live) Attempt {
	at := slices.Index(a.toRead, op.Class)
	a.toRead = slices.Delete(slices.Clone(a.toRead), at, at+1)
	a.read = append(slices.Clip(a.read), classRead{op.Class, live})
	if len(a.toRead) > 0 {
		return a
	}
	return a.judge()
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
	a.seats = slices.Clone(a.seats)
	var refusal *Refusal
	for i := range a.seats {
		if a.seats[i].judged {
			continue
		}
		a.seats[i].judged = true
		// Dropping the write that made it the default would free the Lease.
		if a.seats[i].already = slices.Contains(own.Seats, a.request.Seats[i]); a.seats[i].already {
			continue
		}
		if r := a.judgeSeat(i); r != nil && r.worse(refusal) {
			refusal = r
		}
	}
	switch {
	case refusal != nil:
		return a.refuse(refusal)
	case a.request.DryRun:
		a.phase = done
		return a
	}
	return a.write()
}

// write the next Lease, if there is one left.
func (a Attempt) write() Attempt {
	a.phase = writing
	for a.at < len(a.seats) && a.seats[a.at].already {
		a.at++
	}
	if a.at == len(a.seats) {
		a.phase = done
	}
	return a
}

// worse reports whether r is to be reported rather than o: first what does not pass by waiting, then what takes longer.
func (r *Refusal) worse(o *Refusal) bool {
	switch {
	case o == nil:
		return true
	case r.Reason != o.Reason:
		return r.Reason == Taken
	}
	return r.RetryAfter > o.RetryAfter
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

// LeaseWritten goes on after the write of an operation. If the Lease did not have the version that was read, it was not written.
func (a Attempt) LeaseWritten(op Op, written bool) Attempt {
	a.seats = slices.Clone(a.seats)
	p := &a.seats[op.at]
	switch {
	case a.phase == takingOut:
		p.toTakeOut, p.reread = !written, false
		return a.takenOut()
	case !written:
		*p = progress{}
		a.phase = readingLeases
		return a
	}
	p.wrote = true
	a.at++
	return a.write()
}

// Abandon an attempt that cannot go on. Its last write may have succeeded.
func (a Attempt) Abandon() Attempt {
	if a.phase == takingOut || a.phase == done {
		return a
	}
	if a.phase == writing {
		a.seats = slices.Clone(a.seats)
		a.seats[a.at].wrote = true
	}
	return a.takeOut()
}

func (a Attempt) refuse(r *Refusal) Attempt {
	a.refusal = r
	return a.takeOut()
}

// takeOut what was written.
func (a Attempt) takeOut() Attempt {
	a.phase, a.seats = takingOut, slices.Clone(a.seats)
	for i := range a.seats {
		a.seats[i].toTakeOut = a.seats[i].wrote
	}
	return a.takenOut()
}

func (a Attempt) takenOut() Attempt {
	if !slices.ContainsFunc(a.seats, func(p progress) bool { return p.toTakeOut }) {
		a.phase = done
	}
	return a
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
