package capacity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

func writeBy(uid string) selector.Write {
	return selector.Write{ClaimKind: claimKind, Namespace: "team", Name: "claim-" + uid, UID: uid}
}

func reserved(uid string, amount int64) Reservation {
	return Reservation{Write: writeBy(uid), Amount: amount}
}

func TestReserve(t *testing.T) {
	many := make([]Reservation, 400)
	for i := range many {
		many[i] = reserved(strings.Repeat("x", 120)+fmt.Sprint(i), 0)
	}
	others := make([]Reservation, len(many))
	for i, r := range many {
		r.Namespace, others[i] = "other", r
		others[i].Namespace = "other"
	}
	for name, tc := range map[string]struct {
		reason  string
		ledger  Ledger
		amount  int64
		refused string
		want    []Reservation
	}{
		"Room":      {reason: "We should reserve what is asked for.", ledger: Ledger{Open: true, Limits: Limits{5, inventory.Unlimited}, Used: 3, Reservations: []Reservation{reserved("a", 1)}}, amount: 1, want: []Reservation{reserved("a", 1), reserved("new", 1)}},
		"Unlimited": {reason: "We should reserve any amount of a class without a limit.", ledger: Ledger{Open: true, Limits: Limits{inventory.Unlimited, inventory.Unlimited}, Used: 1 << 53}, amount: 1 << 53, want: []Reservation{reserved("new", 1<<53)}},
		"Full":      {reason: "We should not reserve what claims use.", ledger: Ledger{Open: true, Limits: Limits{5, inventory.Unlimited}, Used: 5}, amount: 1, refused: "full: 5 of 5"},
		"Over":      {reason: "We should reserve nothing of a class that is over a limit which was lowered.", ledger: Ledger{Open: true, Limits: Limits{5, inventory.Unlimited}, Used: 9}, amount: 1, refused: "full: 9 of 5"},
		"InFlight":  {reason: "We should say what may become free.", ledger: Ledger{Open: true, Limits: Limits{5, inventory.Unlimited}, Used: 3, Reservations: []Reservation{reserved("a", 2)}}, amount: 1, refused: "full: 5 of 5, 2 of them reserved"},
		"Namespace": {
			reason: "We should keep a namespace within its part.",
			ledger: Ledger{Open: true, Limits: Limits{50, 2}, Namespaces: map[string]int64{"team": 1, "other": 2}, Reservations: []Reservation{reserved("a", 1)}},
			amount: 1, refused: `full for the namespace "team": 2 of 2, 1 of them reserved`,
		},
		"Closed": {reason: "We should reserve nothing before the claims are counted.", ledger: Ledger{Limits: Limits{5, 5}}, amount: 1, refused: "not given out before its claims are counted"},
		"Again": {
			reason: "We should begin the window of a write anew that asks again, with the larger amount.",
			ledger: Ledger{Open: true, Limits: Limits{3, inventory.Unlimited}, Reservations: []Reservation{reserved("new", 3), reserved("a", 0)}}, amount: 1,
			want: []Reservation{reserved("a", 0), {Write: writeBy("new"), Amount: 3, Turn: 1}},
		},
		"CrowdedByItsNamespace": {reason: "We should leave room for the reservations of other namespaces.", ledger: Ledger{Open: true, Limits: Limits{5, inventory.Unlimited}, Reservations: many[:200]}, amount: 1, refused: "asked for by too many claims at once"},
		"CrowdedByOthers":       {reason: "We should keep the ledger small.", ledger: Ledger{Open: true, Limits: Limits{5, inventory.Unlimited}, Reservations: others}, amount: 1, refused: "asked for by too many claims at once"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(tc.ledger.Reservations)
			refusal := tc.ledger.Reserve(writeBy("new"), tc.amount)
			if tc.refused != "" {
				if assert.NotNil(t, refusal, tc.reason) {
					assert.Equal(t, tc.refused, refusal.Error(), tc.reason)
				}
				assert.Len(t, tc.ledger.Reservations, before, tc.reason)
				return
			}
			assert.Nil(t, refusal, tc.reason)
			assert.Equal(t, tc.want, tc.ledger.Reservations, tc.reason)
		})
	}
}

func TestSeal(t *testing.T) {
	l := &Ledger{
		Open: true, Limits: Limits{50, inventory.Unlimited}, Used: 3, Counted: map[string]uint64{claimKind: 7},
		Reservations: []Reservation{{Write: writeBy("a"), Amount: 2, Turn: 1}, {Write: selector.Write{ClaimKind: claimKind, Name: "of no namespace/as somebody likes", UID: "b", Base: "7"}}},
	}
	object := func() *v1beta1.Ledger {
		o := encode(l, &v1beta1.Ledger{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "9", Generation: 4}})
		o.Generation++ // The API server does.
		return o
	}
	l.Version = "9"
	assert.Equal(t, l, decode(object()), "We should read what we wrote.")
	for name, spoil := range map[string]func(*v1beta1.Ledger){
		"Used":     func(o *v1beta1.Ledger) { o.Spec.Used = 0 },
		"Dropped":  func(o *v1beta1.Ledger) { o.Spec.Reservations = nil },
		"Replayed": func(o *v1beta1.Ledger) { o.Generation++ },
		"Copied":   func(o *v1beta1.Ledger) { o.UID = "other" },
		"Unsealed": func(o *v1beta1.Ledger) { o.Spec.Seal = "" },
	} {
		o := object()
		spoil(o)
		assert.False(t, decode(o).Open, "We should take a ledger for closed that somebody else wrote: %s.", name)
	}
}
