package onedefault

import (
	"time"

	"github.com/classbind/classbind/selector/inventory"
)

// Request asks that a class may become default. None of it is trusted: a review can
// be forged.
type Request struct {
	Holder
	// Base is the resourceVersion of the object to update; empty for a creation.
	Base string
	// Seats that the class is to take, each once, in the same order for all requests. It
	// may have some of them already.
	Seats []inventory.Seat
	// Known defaults of each seat, which may be older than any Lease. A class that is
	// no longer default does no harm.
	Known map[inventory.Seat][]Class
	// DryRun writes nothing.
	DryRun bool
}

// Refusal says what stands in the way.
type Refusal struct {
	Reason Reason
	// Seat that is taken, and the class that has it. If the reason is the request's
	// own class, there is no seat.
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
