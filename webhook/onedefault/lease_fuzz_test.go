package onedefault

import (
	"reflect"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
)

// FuzzLease reads a Lease that somebody edited: either it is refused, or it is the same when it is written and read again.
func FuzzLease(f *testing.F) {
	for _, holder := range []string{"sqlclasses.example.org/gold", "rdsclasses.example.org/aws/gold", "", "/", "//", "a/b/c/d", "a//b", "\xff/a", "a/\u2028"} {
		f.Add(holder, "1", `[{"id":"A","from":"10"}]`, byte(7))
		f.Add(holder, "", "", byte(7))
		f.Add(holder, "1", `[{"id":"A"}]`, byte(0))
	}
	for _, pending := range []string{
		"", "null", "[]", "{}", `[{}]`, `[null]`, `[{"id":""}]`, `[{"id":"A"},{"id":"A"}]`, `[{"id":"A","from":"\u2028<\ud800"}]`, `[{"ID":"A","more":[[]]}]`,
		`[{"id":"A"}] `, `[{"id":"A"}]x`, `[{"id":1}]`, "[" + strings.Repeat(`{"id":"A"},`, 7) + `{"id":"B"}]`,
		"[" + strings.Repeat(`{"id":"A"},`, 8) + `{"id":"B"}]`, "\xff", `[{"id":"` + strings.Repeat("<", 2000) + `"}]`,
	} {
		f.Add("sqlclasses.example.org/aws/gold", "5e1f", pending, byte(7))
	}
	if !cost.Fuzzing() { // The annotations of an object have 256 KiB.
		f.Add(strings.Repeat("a/", 500_000), strings.Repeat("<", 100_000), `[{"id":"A"}]`, byte(7))
		f.Add("a/b", "1", "["+strings.Repeat("{},", 80_000)+"{}]", byte(7))
		f.Add("a/b", "1", strings.Repeat("[", 250_000), byte(7))
	}
	meter := cost.NewMeter(f)
	f.Fuzz(func(t *testing.T, holder, uid, pending string, there byte) {
		object := edited(holder, uid, pending, there)
		var got Lease
		var err error
		meter.Measure(t, len(holder)+len(uid)+len(pending), func() { got, err = decode(object) }, holder, uid, pending, there)
		if err != nil {
			if !reflect.DeepEqual(got, Lease{}) {
				t.Errorf("We should not half understand a Lease: %+v", got)
			}
			return
		}
		if free := object.Spec.HolderIdentity == nil; free != (got.Holder.UID == "") {
			t.Errorf("We should take a Lease for free that has no holder, and no other: %+v", got)
		}
		if got.Version != object.ResourceVersion {
			t.Errorf("We should keep the version: %q", got.Version)
		}
		if got.Holder.UID != "" && (got.Holder.String() != holder || string(got.Holder.UID) != uid) {
			t.Errorf("We should read the holder %q as it is: %+v", holder, got.Holder)
		}
		if n := len(got.Pending); (n > 0) != (got.Holder.UID != "") || n > v1beta1.MaxPendingDefaults {
			t.Errorf("We should read the writes of a holder, and no more than there may be: %d", n)
		}
		for _, p := range got.Pending {
			if p.ID == "" || p.Left != 0 {
				t.Errorf("We should know each write by its id, and nothing of its time: %+v", p)
			}
		}
		if got.Holder.UID == "" {
			return // It is never written.
		}
		written := encode(inventory.Seat{ClaimKind: "claims"}, got)
		if again, err := decode(written); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("We should write what we read: %+v and not %+v: %v", got, again, err)
		}
	})
}

// edited has the fields whose bits are set in there.
func edited(holder, uid, pending string, there byte) *coordinationv1.Lease {
	object := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "default.claims", Namespace: "classbind-system", ResourceVersion: "7", Annotations: map[string]string{}},
	}
	if there&1 != 0 {
		object.Spec.HolderIdentity = &holder
	}
	if there&2 != 0 {
		object.Annotations[v1beta1.HolderUIDAnnotation] = uid
	}
	if there&4 != 0 {
		object.Annotations[v1beta1.HolderPendingAnnotation] = pending
	}
	return object
}
