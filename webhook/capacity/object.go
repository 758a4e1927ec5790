package capacity

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// hashBytes of a class are so many that nobody finds two with the same.
const hashBytes = 16

// NameOf the ledger of a class, by the name of its kind, and its own.
func NameOf(classKind, namespace, name string) string {
	sum := sha256.Sum256([]byte(classKind + "\x00" + namespace + "\x00" + name)) // No name has the separator.
	return hex.EncodeToString(sum[:hashBytes])
}

func nameOf(c *inventory.Class) string { return NameOf(c.Kind.Name, c.Namespace, c.Name) }

// titleOf a class says in its ledger what that is of.
func titleOf(c *inventory.Class) string {
	if c.Namespace == "" {
		return c.Kind.Name + "/" + c.Name
	}
	return c.Kind.Name + "/" + c.Namespace + "/" + c.Name
}

// LimitsOf a class.
func LimitsOf(c *inventory.Class) Limits {
	return Limits{c.Capacity.Total, c.Capacity.PerNamespace}
}

// encode a ledger over the object from which it was decoded.
func encode(l *Ledger, over *v1beta1.Ledger) *v1beta1.Ledger {
	o := &v1beta1.Ledger{ObjectMeta: metav1.ObjectMeta{
		Name: over.Name, Namespace: over.Namespace, UID: over.UID, ResourceVersion: over.ResourceVersion, Generation: over.Generation,
	}}
	s := &o.Spec
	s.Class, s.Open, s.Used, s.Namespaces = over.Spec.Class, l.Open, l.Used, l.Namespaces
	s.Capacity, s.PerNamespace = limit(l.Limits.Total), limit(l.Limits.PerNamespace)
	for kind, version := range l.Counted {
		if s.Counted == nil {
			s.Counted = map[string]int64{}
		}
		s.Counted[kind] = int64(version) //nolint:gosec // It is a revision of etcd, which is an int64.
	}
	for i := range l.Reservations {
		r := &l.Reservations[i]
		s.Reserved += r.Amount
		s.Reservations = append(s.Reservations, r.String())
	}
	s.Seal = seal(o, o.Generation+1)
	return o
}

func limit(amount int64) *int64 {
	if amount == inventory.Unlimited {
		return nil
	}
	return &amount
}

// seal of what is in an object. The API server gives each object its own uid, and each change of its spec a generation of its own, so what
// was written before, or elsewhere, has another seal.
func seal(o *v1beta1.Ledger, generation int64) string {
	spec := o.Spec
	spec.Seal = ""
	text, _ := json.Marshal(spec) // It has strings, numbers and maps of them.
	sum := sha256.Sum256([]byte(string(o.UID) + "\x00" + strconv.FormatInt(generation, 10) + "\x00" + string(text)))
	return hex.EncodeToString(sum[:hashBytes])
}

// decode an object. One that somebody else wrote is a ledger that is closed.
func decode(o *v1beta1.Ledger) *Ledger {
	l := &Ledger{Version: o.ResourceVersion, Limits: Limits{inventory.Unlimited, inventory.Unlimited}}
	s := &o.Spec
	if !s.Open || s.Seal != seal(o, o.Generation) {
		return l
	}
	l.Open, l.Used, l.Namespaces = true, s.Used, s.Namespaces
	if s.Capacity != nil {
		l.Limits.Total = *s.Capacity
	}
	if s.PerNamespace != nil {
		l.Limits.PerNamespace = *s.PerNamespace
	}
	for kind, version := range s.Counted {
		if l.Counted == nil {
			l.Counted = map[string]uint64{}
		}
		l.Counted[kind] = uint64(version) //nolint:gosec // See encode.
	}
	for _, text := range s.Reservations {
		l.Reservations = append(l.Reservations, parseReservation(text))
	}
	return l
}

// noBase stands for the version that a creation does not update.
const noBase = "-"

// String is how a ledger has it. A string costs the API server least, and reservations are most of what it decodes and validates of a
// ledger. NAMESPACE/NAME comes last, because it may have spaces in a review that somebody forged.
func (r *Reservation) String() string {
	return strings.Join([]string{
		strconv.FormatInt(r.Amount, 10), strconv.FormatInt(r.Turn, 10),
		r.UID, cmp.Or(r.Base, noBase), r.ClaimKind, r.Namespace + "/" + r.Name,
	}, " ")
}

// parseReservation reads what String wrote.
func parseReservation(text string) (r Reservation) {
	next := func(separator string) (part string) {
		part, text, _ = strings.Cut(text, separator)
		return part
	}
	r.Amount, _ = strconv.ParseInt(next(" "), 10, 64) // The seal shows that String wrote it.
	r.Turn, _ = strconv.ParseInt(next(" "), 10, 64)
	r.UID = next(" ")
	if base := next(" "); base != noBase {
		r.Base = base
	}
	r.ClaimKind, r.Namespace = next(" "), next("/")
	r.Name = text
	return r
}
