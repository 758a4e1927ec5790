package onedefault

import (
	"fmt"
	"strings"

	"github.com/classbind/classbind/selector"
)

// Prefixes of Lease names. No namespace has a dot, so a name has only one reading,
// and the name of the leader's Lease has no dot at all.
const (
	clusterPrefix   = "default."
	namespacePrefix = "default-in."
)

// LeaseName of a seat: default.CLAIMKIND or default-in.NAMESPACE.CLAIMKIND. Of the
// 253 characters that a name may have, 178 are left for the claim kind's.
func LeaseName(s selector.Seat) string {
	if s.Namespace == "" {
		return clusterPrefix + s.ClaimKind
	}
	return namespacePrefix + s.Namespace + "." + s.ClaimKind
}

// SeatOf returns the seat of a Lease by its name; ours is false for other Leases.
func SeatOf(leaseName string) (s selector.Seat, ours bool) {
	if claimKind, ok := strings.CutPrefix(leaseName, clusterPrefix); ok {
		return selector.Seat{ClaimKind: claimKind}, claimKind != ""
	}
	rest, ok := strings.CutPrefix(leaseName, namespacePrefix)
	if !ok {
		return s, false
	}
	s.Namespace, s.ClaimKind, _ = strings.Cut(rest, ".")
	return s, s.Namespace != "" && s.ClaimKind != ""
}

// describe a seat for people.
func describe(s selector.Seat) string {
	if s.Namespace == "" {
		return fmt.Sprintf("claim kind %q", s.ClaimKind)
	}
	return fmt.Sprintf("claim kind %q in namespace %q", s.ClaimKind, s.Namespace)
}
