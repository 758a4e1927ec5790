package onedefault

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

var (
	me    = Class{Kind: "golds.example.org", Name: "me"}
	other = Class{Kind: "silvers.example.org", Namespace: "team", Name: "other"}
)

func seat(claimKind string) inventory.Seat { return inventory.Seat{ClaimKind: claimKind} }

func seats(claimKinds ...string) (all []inventory.Seat) {
	for _, name := range claimKinds {
		all = append(all, seat(name))
	}
	return all
}

// newRequest of me, for the seats of the claim kinds.
func newRequest(base string, claimKinds ...string) *Request {
	return &Request{Holder: Holder{Class: me, UID: "me-1"}, Base: base, Seats: seats(claimKinds...)}
}

func pending(id, base string, left time.Duration) Pending {
	return Pending{ID: id, Base: base, Left: left}
}

// held is a Lease of a class whose uid is its name and "-1".
func held(c Class, all ...Pending) Lease {
	return Lease{Version: "7", Holder: Holder{Class: c, UID: types.UID(c.Name + "-1")}, Pending: all}
}

// run takes an attempt to its end.
func run(a Attempt, lease Lease, live map[Class]Live) (read []Class, written []Lease, refusal *Refusal) {
	for {
		ops := a.Next()
		if ops == nil {
			return read, written, a.Refusal()
		}
		switch op := ops[0]; op.Kind {
		case ReadLease:
			a = a.Done(op, Result{Lease: lease})
		case ReadClass:
			read = append(read, op.Class)
			a = a.Done(op, Result{Live: live[op.Class]})
		default:
			written = append(written, op.Lease)
			a = a.Done(op, Result{Written: true})
		}
	}
}

// TestAttempt has a row for each rule of what may become default.
func TestAttempt(t *testing.T) {
	x := seats("x")
	stored := Live{UID: "me-1", Version: "10"} // me, where it is to be updated
	isDefault := &Refusal{Reason: Taken, Seat: x[0], Class: other}
	inFlightFor := func(c Class, left time.Duration) *Refusal {
		return &Refusal{Reason: InFlight, Seat: x[0], Class: c, RetryAfter: left}
	}
	landed := held(other, pending("o", "", window))
	landed.Landed = true
	var crowd []Pending
	for i := range v1beta1.MaxPendingDefaults {
		crowd = append(crowd, pending(fmt.Sprint(i), "10", window-time.Duration(i)))
	}
	mine := pending("mine", "10", 0)
	type want struct {
		read    []Class // beside me
		refusal *Refusal
		pending []Pending // of the Lease that is written
		nothing bool      // is written
	}
	for name, tc := range map[string]struct {
		reason string
		create bool
		own    *Live // if not as it is to be
		lease  Lease
		known  []Class
		live   Live // of the other
		want   want
	}{
		"NoLease":      {reason: "We should take a Lease that there is not yet.", want: want{pending: []Pending{mine}}},
		"Free":         {reason: "We should take a Lease that names nobody.", lease: Lease{Version: "7"}, want: want{pending: []Pending{mine}}},
		"FreeToCreate": {reason: "We should record no base of a creation.", create: true, want: want{pending: []Pending{pending("mine", "", 0)}}},

		"Exists": {
			reason: "We should not hold a seat for a creation that cannot be stored.",
			create: true,
			own:    &Live{UID: "me-0", Version: "9"},
			want:   want{refusal: &Refusal{Reason: Exists, Class: me}},
		},
		"DefaultAlready": {
			reason: "We should leave a Lease alone that may have made the class default.",
			own:    &Live{UID: "me-1", Version: "10", Seats: x},
			lease:  held(me, pending("before", "9", window)),
			want:   want{nothing: true},
		},
		"DefaultAlreadyElsewhere": {
			reason: "We should take a seat for a class that is the default of another.",
			own:    &Live{UID: "me-1", Version: "10", Seats: []inventory.Seat{{ClaimKind: "x", Partition: "p"}}},
			want:   want{pending: []Pending{mine}},
		},

		"Mine": {
			reason: "We should record every write of our class that may be in flight.",
			lease:  held(me, pending("before", "10", window)),
			want:   want{pending: []Pending{pending("before", "10", window), mine}},
		},
		"MineOfAnOlderBase": {
			reason: "We should drop an update of our class that can land no more.",
			lease:  held(me, pending("before", "9", window)),
			want:   want{pending: []Pending{mine}},
		},
		"MineCrowded": {
			reason: "We should not let a Lease grow without end, and say when it has room.",
			lease:  held(me, crowd...),
			want:   want{refusal: inFlightFor(me, window-time.Duration(len(crowd)-1))},
		},
		"MineSentTwice": {
			reason: "We should record once what was written though we were told that it was not.",
			lease:  held(me, pending("mine", "10", window)),
			want:   want{nothing: true},
		},
		"MineUnderOtherName": {
			reason: "We should not take another class for ours because somebody names its uid.",
			lease:  Lease{Version: "7", Holder: Holder{Class: other, UID: "me-1"}, Pending: []Pending{pending("o", "9", window)}},
			live:   Live{UID: "me-1", Version: "9"},
			want:   want{read: []Class{other}, refusal: inFlightFor(other, window)},
		},
		"MineByNameAlone": {
			reason: "We should wait for the creation of another class of our name.",
			lease:  Lease{Version: "7", Holder: Holder{Class: me, UID: "me-0"}, Pending: []Pending{pending("o", "", window)}},
			want:   want{refusal: inFlightFor(me, window)},
		},

		"DefaultAlreadyOther": {
			reason: "We should refuse for good while another is default.",
			lease:  held(other, pending("o", "9", window)),
			live:   Live{UID: "other-1", Version: "10", Seats: x},
			want:   want{read: []Class{other}, refusal: isDefault},
		},
		"DefaultUnderAnotherUID": {
			reason: "We should refuse where a class of that name is default, whichever was admitted.",
			lease:  held(other, pending("o", "", 0)),
			live:   Live{UID: "other-2", Version: "10", Seats: x},
			want:   want{read: []Class{other}, refusal: isDefault},
		},
		"DefaultOfAnotherPart": {
			reason: "We should not mind the default of another partition.",
			lease:  held(other, pending("o", "9", window)),
			live:   Live{UID: "other-1", Version: "10", Seats: []inventory.Seat{{ClaimKind: "x", Partition: "p"}}},
			want:   want{read: []Class{other}, pending: []Pending{mine}},
		},
		"DefaultOfAnotherSeat": {
			reason: "We should not mind the default of another seat.",
			lease:  held(other, pending("o", "9", window)),
			live:   Live{UID: "other-1", Version: "10", Seats: []inventory.Seat{{ClaimKind: "x", Namespace: "team"}}},
			want:   want{read: []Class{other}, pending: []Pending{mine}},
		},

		"UpdatedAndGone": {
			reason: "We should pass over an update of a class that is gone.",
			lease:  held(other, pending("o", "10", window)),
			want:   want{read: []Class{other}, pending: []Pending{mine}},
		},
		"UpdatedElsewise": {
			reason: "We should pass over an update from a version that the API server has no more.",
			lease:  held(other, pending("o", "10", window)),
			live:   Live{UID: "other-1", Version: "11"},
			want:   want{read: []Class{other}, pending: []Pending{mine}},
		},
		"UpdateInFlight": {
			reason: "We should wait for an update whose version the API server still has.",
			lease:  held(other, pending("o", "10", 1)),
			live:   Live{UID: "other-1", Version: "10"},
			want:   want{read: []Class{other}, refusal: inFlightFor(other, 1)},
		},
		"UpdateOver": {
			reason: "We should pass over an update once its window is over.",
			lease:  held(other, pending("o", "10", 0)),
			live:   Live{UID: "other-1", Version: "10"},
			want:   want{read: []Class{other}, pending: []Pending{mine}},
		},
		"OneOfSeveralLeft": {
			reason: "We should wait for the longest of all writes.",
			lease:  held(other, pending("o", "9", window), pending("p", "10", 5), pending("q", "10", 3)),
			live:   Live{UID: "other-1", Version: "10"},
			want:   want{read: []Class{other}, refusal: inFlightFor(other, 5)},
		},

		"CreatedAndDeleted": {
			reason: "We should pass over a creation that we saw land, whatever became of it.",
			lease:  landed,
			want:   want{read: []Class{other}, pending: []Pending{mine}},
		},
		"CreationInFlight": {
			reason: "We should wait for a creation that nobody saw land.",
			lease:  held(other, pending("o", "", window)),
			want:   want{read: []Class{other}, refusal: inFlightFor(other, window)},
		},
		"CreationInFlightOverAnother": {
			reason: "We should wait for a creation in whose place there is another class, which may be deleted.",
			lease:  held(other, pending("o", "", window)),
			live:   Live{UID: "other-2", Version: "10"},
			want:   want{read: []Class{other}, refusal: inFlightFor(other, window)},
		},
		"CreationOver": {
			reason: "We should pass over a creation once its window is over.",
			lease:  held(other, pending("o", "", 0)),
			want:   want{read: []Class{other}, pending: []Pending{mine}},
		},

		"KnownDefault": {
			reason: "We should refuse while there is a default that no Lease knows.",
			known:  []Class{other},
			live:   Live{UID: "other-1", Seats: x},
			want:   want{read: []Class{other}, refusal: isDefault},
		},
		"KnownNoMore": {
			reason: "We should believe the API server rather than a cache.",
			known:  []Class{other},
			live:   Live{UID: "other-1"},
			want:   want{read: []Class{other}, pending: []Pending{mine}},
		},
		"KnownIsMe": {reason: "We should not stand in our own way.", known: []Class{me}, want: want{pending: []Pending{mine}}},
		"KnownIsTheHolder": {
			reason: "We should read a class once.",
			lease:  held(other, pending("o", "10", window)),
			known:  []Class{other},
			want:   want{read: []Class{other}, pending: []Pending{mine}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			request, own := newRequest("10", "x"), stored
			if tc.create {
				request, own = newRequest("", "x"), Live{}
			}
			if tc.own != nil {
				own = *tc.own
			}
			request.Known = map[inventory.Seat][]Class{x[0]: tc.known, seat("y"): {{Kind: "of", Name: "another claim kind"}}}
			live := map[Class]Live{me: own, other: tc.live}
			read, written, refusal := run(Begin(request, "mine"), tc.lease, live)
			assert.ElementsMatch(t, append([]Class{me}, tc.want.read...), read, tc.reason)
			assert.Equal(t, tc.want.refusal, refusal, tc.reason)
			var want []Lease
			if refusal == nil && !tc.want.nothing {
				want = []Lease{{Version: tc.lease.Version, Holder: request.Holder, Pending: tc.want.pending}}
			}
			assert.Equal(t, want, written, tc.reason)

			request.DryRun = true
			dryRead, written, dryRefusal := run(Begin(request, "mine"), tc.lease, live)
			assert.Equal(t, read, dryRead, "We should look at the same in a dry run.")
			assert.Equal(t, refusal, dryRefusal, tc.reason)
			assert.Empty(t, written, "We should write nothing in a dry run.")
		})
	}
}
