package capacity

import (
	"fmt"
	"maps"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// Limits of a class, each inventory.Unlimited or at least 0, in the unit of its capacity.
type Limits struct{ Total, PerNamespace int64 }

// Ledger says how much of one class is taken: by the claims that the leader counted, and by writes of claims that may yet be stored.
type Ledger struct {
	// Version is its resourceVersion, empty if there is no ledger.
	Version string
	// Open is false while a claim may be in flight for which there is no reservation.
	Open   bool
	Limits Limits
	// Used by the claims that were counted, also by namespace where that has a limit.
	Used       int64
	Namespaces map[string]int64
	// Counted is the resourceVersion of the view by which the claims of each ClaimKind were counted.
	Counted      map[string]uint64
	Reservations []Reservation
}

// Reservation is what a write adds to the amount that is used.
type Reservation struct {
	selector.Write
	Amount int64
	// Turn is how often it was made before. Its window begins anew each time.
	Turn int64
}

// Refusal says why there is no room for a write.
type Refusal struct {
	Reason Reason
	// Of which limit, with the namespace if it is that of one.
	Namespace string
	Limit     int64
	// Used and Reserved are what others take of it.
	Used, Reserved int64
}

// Reason of a refusal.
type Reason int8

// The reasons.
const (
	// Full means that claims use the class. Only a deletion, or a higher limit, makes room.
	Full Reason = iota
	// InFlight means that reservations are in the way, some of which may come to nothing.
	InFlight
	// Closed means that the leader has yet to count the claims.
	Closed
	// Crowded means that the ledger has no place for another reservation.
	Crowded
)

// Error says what is in the way, after "is".
func (r *Refusal) Error() string {
	switch r.Reason {
	case Closed:
		return "not given out before its claims are counted"
	case Crowded:
		return "asked for by too many claims at once"
	default:
	}
	text := fmt.Sprintf("full: %d of %d", r.Used+r.Reserved, r.Limit)
	if r.Namespace != "" {
		text = fmt.Sprintf("full for the namespace %q: %d of %d", r.Namespace, r.Used+r.Reserved, r.Limit)
	}
	if r.Reserved > 0 {
		text += fmt.Sprintf(", %d of them reserved", r.Reserved)
	}
	return text
}

// Reserve an amount for a write, or say why not. The same write may ask again, if the API server does: its reservation then begins anew,
// because it may have been forged, or made long before.
func (l *Ledger) Reserve(w selector.Write, amount int64) *Refusal {
	if !l.Open {
		return &Refusal{Reason: Closed}
	}
	r := Reservation{Write: w, Amount: amount}
	others := l.Reservations
	if i := slices.IndexFunc(others, func(o Reservation) bool { return o.Write == w }); i >= 0 {
		r.Amount, r.Turn = max(amount, others[i].Amount), others[i].Turn+1
		others = slices.Delete(slices.Clone(others), i, i+1)
	}
	if refusal := l.admits(others, r); refusal != nil {
		return refusal
	}
	l.Reservations = append(slices.Clip(others), r)
	return nil
}

// admits reports what is in the way of a reservation beside others.
func (l *Ledger) admits(others []Reservation, r Reservation) *Refusal {
	total, ofNamespace := sum(others, nil), int64(0)
	if l.Limits.PerNamespace != inventory.Unlimited {
		ofNamespace = sum(others, &r.Namespace)
	}
	for _, limit := range []struct {
		namespace             string
		limit, used, reserved int64
	}{
		{"", l.Limits.Total, l.Used, total},
		{r.Namespace, l.Limits.PerNamespace, l.Namespaces[r.Namespace], ofNamespace},
	} {
		free := limit.limit - limit.used
		if r.Amount <= free-limit.reserved {
			continue
		}
		refusal := &Refusal{Full, limit.namespace, limit.limit, limit.used, limit.reserved}
		if r.Amount <= free {
			refusal.Reason = InFlight
		}
		return refusal
	}
	all, ofOne := l.size(), 0
	for i := range others {
		all += others[i].size()
		if others[i].Namespace == r.Namespace {
			ofOne += others[i].size()
		}
	}
	if all+r.size() > v1beta1.MaxLedgerBytes || ofOne+r.size() > v1beta1.MaxLedgerBytesOfNamespace {
		return &Refusal{Reason: Crowded}
	}
	return nil
}

// size of a reservation in JSON, in bytes.
func (r *Reservation) size() int {
	const separators, numbers = 10, 30
	return separators + numbers + len(r.ClaimKind) + len(r.Namespace) + len(r.Name) + len(r.UID) + len(r.Base)
}

// size of the rest.
func (l *Ledger) size() int {
	const entry = 25
	size := 0
	for name := range l.Namespaces {
		size += len(name) + entry
	}
	for kind := range l.Counted {
		size += len(kind) + entry
	}
	return size
}

// sum of the reservations, or of those of a namespace.
func sum(all []Reservation, namespace *string) (total int64) {
	for i := range all {
		if namespace == nil || all[i].Namespace == *namespace {
			total += all[i].Amount
		}
	}
	return total
}

// Count is what the leader knows of the claims of one class.
type Count struct {
	Limits Limits
	selector.Usage
	// Ended are reservations whose window is over and which were not stored, as a live read after it showed.
	Ended map[Reservation]bool
	// Complete opens a ledger: the claims were listed when no write without a reservation could be in flight.
	Complete bool
}

// Recount takes what a view shows in place of what was counted before, and of the reservations that it shows. It reports whether anything
// changed. A view that is behind the last one changes nothing.
func (l *Ledger) Recount(c *Count) (changed bool) {
	for kind, version := range c.Versions {
		if version < l.Counted[kind] {
			return false
		}
	}
	kept := slices.DeleteFunc(slices.Clone(l.Reservations), func(r Reservation) bool { return c.Ended[r] || c.Shown[r.Write] })
	changed = len(kept) != len(l.Reservations) || c.Used != l.Used || c.Limits != l.Limits || c.Complete && !l.Open ||
		!maps.Equal(c.Namespaces, l.Namespaces)
	l.Used, l.Namespaces, l.Limits, l.Counted, l.Reservations = c.Used, c.Namespaces, c.Limits, c.Versions, kept
	l.Open = l.Open || c.Complete
	return changed
}
