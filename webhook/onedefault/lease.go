package onedefault

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector/inventory"
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
	// UID distinguishes it from other classes of its name; empty in a free Lease.
	UID types.UID
}

// Pending is an admitted write of the holder that may be in flight.
type Pending struct {
	// ID of the attempt that admitted it. We make it up: no review can name it.
	ID string `json:"id"`
	// Base is the resourceVersion of the object to update; empty for a creation.
	Base string `json:"from,omitempty"`
	// Left is how long it may yet be in flight, as far as the replica that reads the Lease knows; 0 means over. It is not stored.
	Left time.Duration `json:"-"`
}

// Lease records which class was last admitted as the default of a seat.
type Lease struct {
	// Version is the Lease's resourceVersion, and UID its uid; empty if there is no Lease.
	Version string
	UID     types.UID
	// Holder is empty if the Lease is free, and has a Pending write otherwise. A Lease that is free is as good as none, and deleted.
	Holder  Holder
	Pending []Pending
	// Landed reports whether the replica that reads the Lease has seen the holder stored with its uid. It is not stored.
	Landed bool
}

// Live is a class as the API server has it now; the zero value means none.
type Live struct {
	UID types.UID
	// Version is the resourceVersion.
	Version string
	// Seats whose default it is: none if it is not marked or is being deleted.
	Seats []inventory.Seat
}

// settled reports whether a write of the holder can no longer make the class default, given that it is not default now. A uid is created
// once, and an update is stored only over its base.
func (l *Lease) settled(p Pending, now Live) bool {
	if p.Left <= 0 {
		return true
	}
	if p.Base == "" {
		return l.Landed || now.UID == l.Holder.UID
	}
	return now.UID != l.Holder.UID || now.Version != p.Base
}

// inFlight are the writes that may yet make the holder default, given that it is not default now.
func (l *Lease) inFlight(now Live) []Pending {
	return slices.DeleteFunc(slices.Clone(l.Pending), func(p Pending) bool { return l.settled(p, now) })
}

// unused reports whether the holder is not default, and can no longer become it by a write that the Lease records. So the Lease is as good
// as none. The holder must have been read after the Lease.
func (l *Lease) unused(now Live, isSeat func(inventory.Seat) bool) bool {
	return !slices.ContainsFunc(now.Seats, isSeat) && len(l.inFlight(now)) == 0
}

// has reports whether the Lease records the write of an attempt.
func (l *Lease) has(id string) bool {
	return slices.ContainsFunc(l.Pending, func(p Pending) bool { return p.ID == id })
}

// without returns the Lease without the write of an attempt, which was not admitted after all. A Lease without any write is free.
func (l *Lease) without(id string) Lease {
	next := Lease{Version: l.Version, UID: l.UID}
	for _, p := range l.Pending {
		if p.ID != id {
			next.Holder = l.Holder
			next.Pending = append(next.Pending, p)
		}
	}
	return next
}

// Prefixes of Lease names. No namespace and no hash has a dot, so a name has only one reading, and the name of the leader's Lease has no
// dot at all.
const (
	clusterPrefix   = "default."
	namespacePrefix = "default-in."
	partitionPrefix = "default-of."
)

// hashBytes of a partition are so many that no two with the same can be found.
const hashBytes = 16

// LeaseName of a seat: default.CLAIMKIND, default-in.NAMESPACE.CLAIMKIND, or, with a partition, default-of.HASH.CLAIMKIND, because a
// partition may be any text. Of the 253 characters that a name may have, 178 are left for the claim kind's.
func LeaseName(s inventory.Seat) string {
	switch {
	case s.Partition != "":
		sum := sha256.Sum256([]byte(s.Namespace + "\x00" + s.Partition)) // No namespace has the separator.
		return partitionPrefix + hex.EncodeToString(sum[:hashBytes]) + "." + s.ClaimKind
	case s.Namespace != "":
		return namespacePrefix + s.Namespace + "." + s.ClaimKind
	}
	return clusterPrefix + s.ClaimKind
}

// ClaimKindOf the seat of a Lease, by the name of the Lease; empty if it is not that of a seat.
func ClaimKindOf(leaseName string) string {
	prefix, claimKind, _ := strings.Cut(leaseName, ".")
	switch in := ""; prefix + "." {
	case clusterPrefix:
		return claimKind
	case namespacePrefix, partitionPrefix:
		if in, claimKind, _ = strings.Cut(claimKind, "."); in != "" {
			return claimKind
		}
	}
	return ""
}

// describe a seat for people.
func describe(s inventory.Seat) string { return fmt.Sprintf("claim kind %q%s", s.ClaimKind, s.In()) }
