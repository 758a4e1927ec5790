package onedefault

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/classbind/classbind/selector/inventory"
)

// Prefixes of Lease names. No namespace and no hash has a dot, so a name has only one
// reading, and the name of the leader's Lease has no dot at all.
const (
	clusterPrefix   = "default."
	namespacePrefix = "default-in."
	partitionPrefix = "default-of."
)

// hashBytes of a partition are so many that nobody finds two with the same.
const hashBytes = 16

// LeaseName of a seat: default.CLAIMKIND, default-in.NAMESPACE.CLAIMKIND, or, with a
// partition, default-of.HASH.CLAIMKIND, because a partition may be any text. Of the
// 253 characters that a name may have, 178 are left for the claim kind's.
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

// isOurs reports whether a Lease is that of a seat.
func isOurs(leaseName string) bool {
	prefix, rest, _ := strings.Cut(leaseName, ".")
	if prefix+"." == clusterPrefix {
		return rest != ""
	}
	in, claimKind, _ := strings.Cut(rest, ".")
	return (prefix+"." == namespacePrefix || prefix+"." == partitionPrefix) && in != "" && claimKind != ""
}

// ClaimKindOf the seat of a Lease, by the name of the Lease.
func ClaimKindOf(leaseName string) string {
	prefix, claimKind, _ := strings.Cut(leaseName, ".")
	if prefix+"." != clusterPrefix {
		_, claimKind, _ = strings.Cut(claimKind, ".")
	}
	return claimKind
}

// describe a seat for people.
func describe(s inventory.Seat) string { return fmt.Sprintf("claim kind %q%s", s.ClaimKind, s.In()) }
