package onedefault

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	me    = Class{Kind: "golds.example.org", Name: "me"}
	other = Class{Kind: "silvers.example.org", Namespace: "team", Name: "other"}
)

// newRequest of me, for the claim kinds.
func newRequest(base string, claimKinds ...string) *Request {
	return &Request{Holder: Holder{Class: me, UID: "me-1", Base: base}, ClaimKinds: claimKinds, Window: window}
}

// heldByOther is a Lease that was written so long before the epoch.
func heldByOther(base string, age time.Duration) Lease {
	return Lease{Version: "7", Holder: Holder{Class: other, UID: "other-1", Base: base}, Written: epoch.Add(-age), Window: window}
}

// run takes an attempt to its end at the epoch.
func run(a Attempt, lease Lease, live map[Class]Live) (read []Class, written []Lease, refusal *Refusal) {
	for {
		switch op := a.Next(); op.Kind {
		case ReadLease:
			a = a.LeaseRead(lease, epoch)
		case ReadClass:
			read = append(read, op.Class)
			a = a.ClassRead(live[op.Class])
		case WriteLease:
			written = append(written, op.Lease)
			a = a.LeaseWritten("8")
		case Done:
			return read, written, a.Refusal()
		}
	}
}

// TestAttempt has a row for each rule of what may become default.
func TestAttempt(t *testing.T) {
	mine := func(base string, age time.Duration) Lease {
		l := heldByOther(base, age)
		l.Holder.Class, l.Holder.UID = me, "me-1"
		return l
	}
	isDefault := &Refusal{ClaimKind: "x", Class: other}
	inFlightFor := func(left time.Duration) *Refusal { return &Refusal{ClaimKind: "x", Class: other, RetryAfter: left} }
	shorter := heldByOther("", 11*time.Second)
	shorter.Window = 10 * time.Second
	type want struct {
		read    []Class
		base    string
		refusal *Refusal
	}
	for name, tc := range map[string]struct {
		reason string
		base   string // of the request
		lease  Lease
		known  []Class
		live   map[Class]Live
		want   want
	}{
		"NoLease": {
			reason: "We should take a Lease that there is not yet.",
		},
		"Free": {
			reason: "We should take a Lease that names nobody.",
			lease:  Lease{Version: "7"}, base: "10", want: want{base: "10"},
		},

		"Mine": {
			reason: "We should take our own Lease at once: the API server may ask again.",
			lease:  mine("", 0),
		},
		"MineWithTheSameBase": {
			reason: "We should take our own Lease at once, whatever a base looks like.",
			lease:  mine("aleph", 0), base: "aleph", want: want{base: "aleph"},
		},
		"MineCreatedBefore": {
			reason: "We should record the update of a class that was created before.",
			lease:  mine("", 0), base: "10", want: want{base: "10"},
		},
		"MineUpdatedBefore": {
			reason: "We should keep the base of an update where we are asked for the creation that came before it.",
			lease:  mine("10", 0), want: want{base: "10"},
		},
		"MineWithAnOlderBase": {
			reason: "We should record the newer base.",
			lease:  mine("10", 0), base: "11", want: want{base: "11"},
		},
		"MineWithANewerBase": {
			reason: "We should keep the newer base: two API servers may ask in any order.",
			lease:  mine("11", 0), base: "10", want: want{base: "11"},
		},
		"MineWithAShorterBase": {
			reason: "We should compare bases as numbers, of which 10 is newer than 9.",
			lease:  mine("9", 0), base: "10", want: want{base: "10"},
		},
		"MineWithALongerBase": {
			reason: "We should compare bases as numbers, of which 10 is newer than 9.",
			lease:  mine("10", 0), base: "9", want: want{base: "10"},
		},
		"MineWithAnIncomparableBase": {
			reason: "We should not guess which of two bases is the newer while either may be updated from.",
			lease:  mine("aleph", window-1), base: "beth",
			want: want{refusal: &Refusal{ClaimKind: "x", Class: me, RetryAfter: 1}},
		},
		"MineWithAnIncomparableBaseOnceItIsOver": {
			reason: "We should record the base of this request once nothing can be updated from the other.",
			lease:  mine("aleph", window), base: "beth", want: want{base: "beth"},
		},

		"DefaultAlready": {
			reason: "We should refuse for good while another is default.",
			lease:  heldByOther("", 0), live: map[Class]Live{other: {UID: "other-1", Version: "10", Default: true}},
			want: want{read: []Class{other}, refusal: isDefault},
		},
		"DefaultForLong": {
			reason: "We should refuse for good however long another is default.",
			lease:  heldByOther("9", time.Hour), live: map[Class]Live{other: {UID: "other-1", Version: "10", Default: true}},
			want: want{read: []Class{other}, refusal: isDefault},
		},
		"DefaultUnderAnotherUID": {
			reason: "We should refuse where a class of that name is default, whichever was admitted.",
			lease:  heldByOther("", time.Hour), live: map[Class]Live{other: {UID: "other-2", Version: "10", Default: true}},
			want: want{read: []Class{other}, refusal: isDefault},
		},

		"UpdatedAndGone": {
			reason: "We should pass over an update of a class that is gone.",
			lease:  heldByOther("10", 0), want: want{read: []Class{other}},
		},
		"UpdatedAndAnother": {
			reason: "We should pass over an update of a class in whose place there is another.",
			lease:  heldByOther("10", 0), live: map[Class]Live{other: {UID: "other-2", Version: "10"}},
			want: want{read: []Class{other}},
		},
		"UpdatedElsewise": {
			reason: "We should pass over an update from a version that the API server has no more.",
			lease:  heldByOther("10", 0), live: map[Class]Live{other: {UID: "other-1", Version: "11"}},
			want: want{read: []Class{other}},
		},
		"UpdateInFlight": {
			reason: "We should wait for an update whose version the API server still has.",
			lease:  heldByOther("10", 0), live: map[Class]Live{other: {UID: "other-1", Version: "10"}},
			want: want{read: []Class{other}, refusal: inFlightFor(window)},
		},
		"UpdateInFlightForNearlyAWindow": {
			reason: "We should wait until the whole window is over.",
			lease:  heldByOther("10", window-1), live: map[Class]Live{other: {UID: "other-1", Version: "10"}},
			want: want{read: []Class{other}, refusal: inFlightFor(1)},
		},
		"UpdateInFlightForAWindow": {
			reason: "We should pass over an update once its window is over, and not a moment later.",
			lease:  heldByOther("10", window), live: map[Class]Live{other: {UID: "other-1", Version: "10"}},
			want: want{read: []Class{other}},
		},

		"CreatedAndUndone": {
			reason: "We should pass over a creation that landed, of a class that is default no more.",
			lease:  heldByOther("", 0), live: map[Class]Live{other: {UID: "other-1", Version: "11"}},
			want: want{read: []Class{other}},
		},
		"CreationInFlight": {
			reason: "We should wait for a creation that has not landed: we cannot tell it from one that was deleted.",
			lease:  heldByOther("", 0), want: want{read: []Class{other}, refusal: inFlightFor(window)},
		},
		"CreationInFlightOverAnother": {
			reason: "We should wait for a creation in whose place there is another class, which may be deleted.",
			lease:  heldByOther("", 0), live: map[Class]Live{other: {UID: "other-2", Version: "10"}},
			want: want{read: []Class{other}, refusal: inFlightFor(window)},
		},
		"CreationInFlightForNearlyAWindow": {
			reason: "We should wait until the whole window is over.",
			lease:  heldByOther("", window-1), want: want{read: []Class{other}, refusal: inFlightFor(1)},
		},
		"CreationInFlightForAWindow": {
			reason: "We should pass over a creation once its window is over, and not a moment later.",
			lease:  heldByOther("", window), want: want{read: []Class{other}},
		},
		"CreationInFlightForItsOwnWindow": {
			reason: "We should go by the window of who wrote the Lease, which may be set otherwise than ours.",
			lease:  shorter, want: want{read: []Class{other}},
		},

		"KnownDefault": {
			reason: "We should refuse while there is a default that no Lease knows.",
			known:  []Class{other}, live: map[Class]Live{other: {UID: "other-1", Version: "10", Default: true}},
			want: want{read: []Class{other}, refusal: isDefault},
		},
		"KnownDefaultBesideMine": {
			reason: "We should refuse while there is a default that our own Lease does not know.",
			lease:  mine("", 0), known: []Class{other}, live: map[Class]Live{other: {UID: "other-1", Version: "10", Default: true}},
			want: want{read: []Class{other}, refusal: isDefault},
		},
		"KnownNoMore": {
			reason: "We should believe the API server rather than a cache, and wait for nothing: no Lease says that it is in flight.",
			known:  []Class{other}, live: map[Class]Live{other: {UID: "other-1", Version: "10"}},
			want: want{read: []Class{other}},
		},
		"KnownIsMe": {
			reason: "We should not stand in our own way where we are default before we are asked again.",
			known:  []Class{me}, base: "9", live: map[Class]Live{me: {UID: "me-1", Version: "10", Default: true}},
			want: want{read: []Class{me}, base: "9"},
		},
		"KnownIsMyNamesake": {
			reason: "We should refuse while a class of our name is default that is not ours.",
			known:  []Class{me}, live: map[Class]Live{me: {UID: "me-0", Version: "10", Default: true}},
			want: want{read: []Class{me}, refusal: &Refusal{ClaimKind: "x", Class: me}},
		},
		"KnownIsTheHolder": {
			reason: "We should read a class once that both the Lease and the inventory name.",
			lease:  heldByOther("10", 0), known: []Class{other}, want: want{read: []Class{other}},
		},
		"KnownBesideTheHolder": {
			reason: "We should look at the holder and at what the inventory knows.",
			lease:  heldByOther("10", 0), known: []Class{{Kind: "a", Name: "a"}, {Kind: "b", Name: "b"}},
			live: map[Class]Live{{Kind: "b", Name: "b"}: {UID: "b-1", Default: true}},
			want: want{read: []Class{other, {Kind: "a", Name: "a"}, {Kind: "b", Name: "b"}}, refusal: &Refusal{ClaimKind: "x", Class: Class{Kind: "b", Name: "b"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := newRequest(tc.base, "x")
			request.Known = map[string][]Class{"x": tc.known, "y": {{Kind: "of", Name: "another claim kind"}}}
			read, written, refusal := run(Begin(request), tc.lease, tc.live)
			assert.Equal(t, tc.want.read, read, tc.reason)
			assert.Equal(t, tc.want.refusal, refusal, tc.reason)
			if tc.want.refusal != nil {
				assert.Empty(t, written, tc.reason)
				return
			}
			assert.Equal(t, []Lease{{
				Version: tc.lease.Version, Holder: Holder{Class: me, UID: "me-1", Base: tc.want.base}, Written: epoch, Window: window,
			}}, written, tc.reason)

			request.DryRun = true
			dryRead, written, refusal := run(Begin(request), tc.lease, tc.live)
			assert.Equal(t, read, dryRead, "We should look at the same in a dry run.")
			assert.Nil(t, refusal, tc.reason)
			assert.Empty(t, written, "We should write nothing in a dry run.")
		})
	}
}

// TestClockSkew states the bound on clocks. The API server stores nothing 60 s
// after it was asked, or later. With a window of 90 s, clocks of replicas that
// differ by up to 30 s let nobody pass over what it may yet store, and keep
// nobody waiting for more than 120 s.
func TestClockSkew(t *testing.T) {
	const (
		longestRequest = 60 * time.Second
		skew           = 30 * time.Second
	)
	// passes says whether a creation so old is passed over by a replica whose
	// clock is ahead of the writer's.
	passes := func(age, ahead time.Duration) bool {
		a := Begin(newRequest("", "x")).LeaseRead(heldByOther("", age), epoch.Add(ahead)).ClassRead(Live{})
		if a.Refusal() != nil {
			require.Equal(t, window-age-ahead, a.Refusal().RetryAfter, "We should say how long to wait by the clock that looks.")
		}
		return a.Refusal() == nil
	}
	for ahead := -skew; ahead <= skew; ahead += 10 * time.Second {
		for age := time.Duration(0); age < longestRequest; age += time.Second {
			require.False(t, passes(age, ahead), "We should pass over nothing that may yet be stored: %s old, %s ahead.", age, ahead)
		}
		require.False(t, passes(longestRequest-1, ahead), "We should pass over nothing that may yet be stored: %s ahead.", ahead)
		require.True(t, passes(window+skew, ahead), "We should keep nobody waiting for longer: %s ahead.", ahead)
	}
	assert.True(t, passes(longestRequest-1, skew+1), "We should know the bound: beyond it, the window has to be longer.")
	assert.False(t, passes(window+skew-1, -skew), "We should know the bound on waiting.")
}

// TestAttemptOnSeveralClaimKinds follows the operations of an attempt, each as a
// line. A Lease that is written gets the claim kind's name as its version.
func TestAttemptOnSeveralClaimKinds(t *testing.T) {
	const readOther = "read silvers.example.org/team/other"
	inFlight := &Refusal{ClaimKind: "z", Class: other, RetryAfter: window}
	type want struct {
		ops     []string
		refusal *Refusal
	}
	for name, tc := range map[string]struct {
		reason     string
		claimKinds []string
		held       map[string]Lease // The others are free.
		dryRun     bool
		conflict   int // is the result of this write, counted from 1
		abandon    int // before this operation, counted from 1
		want       want
	}{
		"None": {
			reason: "We should let a class be default that serves nobody.",
		},
		"AllFree": {
			reason:     "We should take one Lease after the other.",
			claimKinds: []string{"x", "y"},
			want:       want{ops: []string{"get x", `put x over "": me-1`, "get y", `put y over "": me-1`}},
		},
		"RefusedTheLast": {
			reason:     "We should put back what we took, each in the place of what we wrote.",
			claimKinds: []string{"x", "y", "z"}, held: map[string]Lease{"x": heldByOther("1", time.Hour), "z": heldByOther("", 0)},
			want: want{ops: []string{
				"get x", readOther, `put x over "7": me-1`, "get y", `put y over "": me-1`, "get z", readOther,
				`put y over "y": `, `put x over "x": other-1`,
			}, refusal: inFlight},
		},
		"LostTheSecond": {
			reason:     "We should read a Lease again that was written meanwhile, and that one alone.",
			claimKinds: []string{"x", "y"}, conflict: 2,
			want: want{ops: []string{"get x", `put x over "": me-1`, "get y", `put y over "": me-1`, "get y", `put y over "": me-1`}},
		},
		"LostWhatWasToBePutBack": {
			reason:     "We should leave a Lease to whoever wrote it meanwhile, and put back the others.",
			claimKinds: []string{"x", "y", "z"}, held: map[string]Lease{"z": heldByOther("", 0)}, conflict: 3,
			want: want{ops: []string{
				"get x", `put x over "": me-1`, "get y", `put y over "": me-1`, "get z", readOther, `put y over "y": `, `put x over "x": `,
			}, refusal: inFlight},
		},
		"DryRun": {
			reason:     "We should look at all Leases in a dry run, and write none.",
			claimKinds: []string{"x", "y"}, dryRun: true,
			want: want{ops: []string{"get x", "get y"}},
		},
		"DryRunRefused": {
			reason:     "We should have nothing to put back in a dry run.",
			claimKinds: []string{"x", "z"}, held: map[string]Lease{"z": heldByOther("", 0)}, dryRun: true,
			want: want{ops: []string{"get x", "get z", readOther}, refusal: inFlight},
		},
		"AbandonedAtOnce": {
			reason:     "We should have nothing to put back before we took anything.",
			claimKinds: []string{"x"}, abandon: 1,
		},
		"AbandonedBeforeTheSecondWrite": {
			reason:     "We should put back what we took when we cannot go on.",
			claimKinds: []string{"x", "y"}, abandon: 4,
			want: want{ops: []string{"get x", `put x over "": me-1`, "get y", `put x over "x": `}},
		},
		"AbandonedWhilePuttingBack": {
			reason:     "We should go on where we were.",
			claimKinds: []string{"x", "y", "z"}, held: map[string]Lease{"z": heldByOther("", 0)}, abandon: 8,
			want: want{ops: []string{
				"get x", `put x over "": me-1`, "get y", `put y over "": me-1`, "get z", readOther, `put y over "y": `, `put x over "x": `,
			}, refusal: inFlight},
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := newRequest("", tc.claimKinds...)
			request.DryRun = tc.dryRun
			a, ops, writes := Begin(request), []string(nil), 0
			for abandoned := false; ; {
				if len(ops)+1 == tc.abandon && !abandoned {
					a, abandoned = a.Abandon(), true
				}
				op := a.Next()
				if op.Kind == Done {
					break
				}
				switch op.Kind {
				case ReadLease:
					ops = append(ops, "get "+op.ClaimKind)
					a = a.LeaseRead(tc.held[op.ClaimKind], epoch)
				case ReadClass:
					ops = append(ops, "read "+op.Class.String())
					a = a.ClassRead(Live{})
				default:
					ops = append(ops, fmt.Sprintf("put %s over %q: %s", op.ClaimKind, op.Lease.Version, op.Lease.Holder.UID))
					version := op.ClaimKind
					if writes++; writes == tc.conflict {
						version = ""
					}
					a = a.LeaseWritten(version)
				}
			}
			assert.Equal(t, tc.want.ops, ops, tc.reason)
			assert.Equal(t, tc.want.refusal, a.Refusal(), tc.reason)
		})
	}
}

func TestAttemptIsAValue(t *testing.T) {
	a := Begin(newRequest("", "v", "w", "x", "y", "z"))
	for range 3 {
		a = a.LeaseRead(Lease{}, epoch).LeaseWritten("1")
	}
	a = a.LeaseRead(Lease{}, epoch)
	one, two := a.LeaseWritten("one"), a.LeaseWritten("two")
	assert.Equal(t, "one", one.Abandon().Next().Lease.Version, "We should not share what was taken with another that went on from here.")
	assert.Equal(t, "two", two.Abandon().Next().Lease.Version)
}
