package onedefault

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Class names a class.
type Class struct {
	// Kind is the name of its ClassKind, <plural>.<group>.
	Kind            string
	Namespace, Name string
}

// String is RESOURCE/NAME as kubectl takes it, or RESOURCE/NAMESPACE/NAME.
func (c Class) String() string {
	if c.Namespace == "" {
		return c.Kind + "/" + c.Name
	}
	return c.Kind + "/" + c.Namespace + "/" + c.Name
}

// Holder is a class that was admitted as a default.
type Holder struct {
	Class
	// UID tells it from others of its name; a Lease that is free has none.
	UID types.UID
	// Base is the resourceVersion of the object that is to be updated; empty, the
	// class is to be created.
	Base string
}

// settled says that what was admitted can no longer make the class default,
// given that it is not default now.
func (h Holder) settled(now Live) bool {
	if h.Base == "" {
		return now.UID == h.UID
	}
	return now.UID != h.UID || now.Version != h.Base
}

// Lease records who was last admitted as the default of a claim kind.
type Lease struct {
	// Version is the Lease's resourceVersion; empty, there is no Lease yet.
	Version string
	Holder  Holder
	// Written is when, by the clock of the replica that wrote it.
	Written time.Time
	// Window from Written in which what was admitted may still be in flight.
	Window time.Duration
}

// Live is what the API server has of a class now; the zero value, none.
type Live struct {
	UID types.UID
	// Version is the resourceVersion.
	Version string
	// Default says that the class counts as one: it is marked, is not being
	// deleted, and serves the claim kind.
	Default bool
}

// Request asks that a class may become default.
type Request struct {
	Holder
	// ClaimKinds that the class serves, in the order of their names.
	ClaimKinds []string
	// Known defaults of each claim kind, which may have been there before any
	// Lease was. What is not default any more does no harm.
	Known map[string][]Class
	// Window is how long the API server may take to store what is admitted, and
	// by how much the replicas' clocks may differ.
	Window time.Duration
	// DryRun writes nothing.
	DryRun bool
}

// Refusal says which class stands in the way.
type Refusal struct {
	ClaimKind string
	Class     Class
	// RetryAfter is positive where the class is not default yet, and may no
	// longer become it after that time.
	RetryAfter time.Duration
}

// Op is what an Attempt needs to have done next.
type Op struct {
	Kind      OpKind
	ClaimKind string
	// Class to be read.
	Class Class
	// Lease to be written in the place of its Version.
	Lease Lease
}

// OpKind is a kind of operation.
type OpKind int

// The kinds of operations.
const (
	// ReadLease of the claim kind, then call LeaseRead.
	ReadLease OpKind = iota
	// ReadClass as the claim kind sees it, then call ClassRead.
	ReadClass
	// WriteLease of the claim kind, then call LeaseWritten.
	WriteLease
	// Done: Refusal has the outcome.
	Done
)

// Attempt takes one request through the Leases of its claim kinds. It is a
// value: every method returns what it has become.
type Attempt struct {
	request *Request
	phase   phase
	// at is the claim kind in hand.
	at int
	// lease of that claim kind as it was read, at the time now.
	lease Lease
	now   time.Time
	// check has the classes still to be read that may stand in the way.
	check []Class
	// taken are the Leases of the claim kinds before that one, as they were
	// before, with the Version that they got.
	taken   []Lease
	refusal *Refusal
}

type phase int

const (
	reading phase = iota
	checking
	taking
	puttingBack
	done
)

// Begin an attempt.
func Begin(r *Request) Attempt {
	a := Attempt{request: r}
	if len(r.ClaimKinds) == 0 {
		a.phase = done
	}
	return a
}

// Next is what has to be done.
func (a Attempt) Next() Op {
	switch a.phase {
	case reading:
		return Op{Kind: ReadLease, ClaimKind: a.claimKind()}
	case checking:
		return Op{Kind: ReadClass, ClaimKind: a.claimKind(), Class: a.check[0]}
	case taking:
		return Op{Kind: WriteLease, ClaimKind: a.claimKind(), Lease: a.claimed()}
	case puttingBack:
		last := len(a.taken) - 1
		return Op{Kind: WriteLease, ClaimKind: a.request.ClaimKinds[last], Lease: a.taken[last]}
	default:
		return Op{Kind: Done}
	}
}

// Refusal is nil if the class may become default.
func (a Attempt) Refusal() *Refusal { return a.refusal }

func (a Attempt) claimKind() string { return a.request.ClaimKinds[a.at] }

// LeaseRead goes on with the Lease as it is, read after now.
func (a Attempt) LeaseRead(l Lease, now time.Time) Attempt {
	a.lease, a.now, a.check = l, now, nil
	if l.Holder.UID == a.request.UID {
		if _, ordered := newest(l.Holder.Base, a.request.Base); !ordered && a.inFlightFor() > 0 {
			return a.refuse(l.Holder.Class, a.inFlightFor())
		}
	} else if l.Holder.UID != "" {
		a.check = append(a.check, l.Holder.Class)
	}
	for _, c := range a.request.Known[a.claimKind()] {
		if !slices.Contains(a.check, c) {
			a.check = append(a.check, c)
		}
	}
	return a.checked()
}

// ClassRead goes on with the class as it is, read after the Lease.
func (a Attempt) ClassRead(live Live) Attempt {
	c, holder := a.check[0], a.lease.Holder
	if live.Default && live.UID != a.request.UID {
		return a.refuse(c, 0)
	}
	held := c == holder.Class && holder.UID != a.request.UID
	if left := a.inFlightFor(); held && left > 0 && !holder.settled(live) {
		return a.refuse(c, left)
	}
	a.check = a.check[1:]
	return a.checked()
}

// checked goes on once nothing is left that may stand in the way.
func (a Attempt) checked() Attempt {
	switch {
	case len(a.check) > 0:
		a.phase = checking
	case a.request.DryRun:
		return a.next()
	default:
		a.phase = taking
	}
	return a
}

// LeaseWritten goes on with the Lease's new version, or, if the write was
// refused because the Lease has another version than the one read, with none.
func (a Attempt) LeaseWritten(version string) Attempt {
	if a.phase == puttingBack { // Whoever wrote it meanwhile has decided for itself.
		a.taken = a.taken[:len(a.taken)-1]
		return a.putBack()
	}
	if version == "" {
		a.phase = reading
		return a
	}
	before := a.lease
	before.Version = version
	a.taken = append(slices.Clip(a.taken), before)
	return a.next()
}

// Abandon an attempt that cannot go on.
func (a Attempt) Abandon() Attempt { return a.putBack() }

func (a Attempt) next() Attempt {
	a.at++
	a.phase = reading
	if a.at == len(a.request.ClaimKinds) {
		a.phase = done
	}
	return a
}

func (a Attempt) refuse(c Class, retryAfter time.Duration) Attempt {
	a.refusal = &Refusal{ClaimKind: a.claimKind(), Class: c, RetryAfter: retryAfter}
	return a.putBack()
}

func (a Attempt) putBack() Attempt {
	a.phase = puttingBack
	if len(a.taken) == 0 {
		a.phase = done
	}
	return a
}

// claimed is the Lease with the request's class as its holder.
func (a Attempt) claimed() Lease {
	l := Lease{Version: a.lease.Version, Holder: a.request.Holder, Written: a.now, Window: a.request.Window}
	if a.lease.Holder.UID == l.Holder.UID {
		l.Holder.Base, _ = newest(l.Holder.Base, a.lease.Holder.Base)
	}
	return l
}

// inFlightFor is how long what the Lease records may still be in flight.
func (a Attempt) inFlightFor() time.Duration {
	return max(0, a.lease.Window-a.now.Sub(a.lease.Written))
}

// newest of two bases, and whether that can be told. The creation of a class
// comes before all its updates. If it cannot be told, the first is returned.
func newest(a, b string) (base string, ordered bool) {
	switch {
	case a == b || b == "":
		return a, true
	case a == "":
		return b, true
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	if order < 0 {
		a = b
	}
	return a, err == nil
}
