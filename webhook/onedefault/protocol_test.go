package onedefault

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memory is a Store with the API server's preconditions, which a test can make fail.
type memory struct {
	leases  map[string]Lease
	classes map[Class]Live
	// disturb is called before each operation, with how many of its kind there
	// have been for the claim kind, counted from 1. Its error is the operation's.
	disturb func(ctx context.Context, op Op, count int) error

	version int
	counts  map[string]int
	writes  int
}

func (m *memory) begin(ctx context.Context, op Op) error {
	if m.counts == nil {
		m.counts = map[string]int{}
	}
	key := op.ClaimKind + strconv.Itoa(int(op.Kind))
	m.counts[key]++
	if m.disturb != nil {
		if err := m.disturb(ctx, op, m.counts[key]); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Lease is read.
func (m *memory) Lease(ctx context.Context, claimKind string) (Lease, error) {
	err := m.begin(ctx, Op{Kind: ReadLease, ClaimKind: claimKind})
	return m.leases[claimKind], err
}

// Class is read.
func (m *memory) Class(ctx context.Context, claimKind string, c Class) (Live, error) {
	err := m.begin(ctx, Op{Kind: ReadClass, ClaimKind: claimKind, Class: c})
	return m.classes[c], err
}

// WriteLease in the place of its version.
func (m *memory) WriteLease(ctx context.Context, claimKind string, l Lease) (string, error) {
	if err := m.begin(ctx, Op{Kind: WriteLease, ClaimKind: claimKind, Lease: l}); err != nil {
		return "", err
	}
	if l.Version != m.leases[claimKind].Version {
		return "", ErrConflict
	}
	m.put(claimKind, l)
	m.writes++
	return m.leases[claimKind].Version, nil
}

// put a Lease there, whatever there is.
func (m *memory) put(claimKind string, l Lease) {
	m.version++
	l.Version = "v" + strconv.Itoa(m.version)
	m.leases[claimKind] = l
}

// records are the Leases without their versions, and those that are there alone.
func (m *memory) records() map[string]Lease {
	records := map[string]Lease{}
	for claimKind, l := range m.leases {
		if l.Version = ""; l != (Lease{}) {
			records[claimKind] = l
		}
	}
	return records
}

func newMemory(leases map[string]Lease) *memory {
	m := &memory{leases: map[string]Lease{}, classes: map[Class]Live{}}
	for claimKind, l := range leases {
		m.put(claimKind, l)
	}
	return m
}

// settled was admitted on version 1 of what has been updated since; whoever comes takes its Lease.
var settled = Lease{Holder: Holder{Class: Class{Kind: "k", Name: "settled"}, UID: "settled-1", Base: "1"}, Written: epoch.Add(-time.Second), Window: 7 * time.Second}

func atEpoch() time.Time { return epoch }

func TestAdmitStartsOver(t *testing.T) {
	landed := Live{UID: "other-1", Version: "10", Default: true}
	for name, tc := range map[string]struct {
		reason  string
		between func(*memory) // the first look at the Lease and the write of it
		want    *Refusal
		holder  Holder
	}{
		"Lost": {
			reason: "We should say who won, where another took the Lease and landed between our look and our write.",
			between: func(m *memory) {
				m.put("x", heldByOther("", 0))
				m.classes[other] = landed
			},
			want: &Refusal{ClaimKind: "x", Class: other}, holder: heldByOther("", 0).Holder,
		},
		"PutBack": {
			reason: "We should take a Lease that another took and put back meanwhile.",
			between: func(m *memory) {
				m.put("x", heldByOther("", 0))
				m.put("x", Lease{})
			},
			holder: newRequest("").Holder,
		},
		"AskedTwice": {
			reason:  "We should keep the newer base that another replica recorded for the same class meanwhile.",
			between: func(m *memory) { m.put("x", Lease{Holder: newRequest("12").Holder, Written: epoch, Window: window}) },
			holder:  newRequest("12").Holder,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(nil)
			m.disturb = func(_ context.Context, op Op, count int) error {
				if op.Kind == WriteLease && count == 1 {
					tc.between(m)
				}
				return nil
			}
			refusal, err := (&Protocol{Store: m, Now: atEpoch}).Admit(t.Context(), newRequest("", "x"))
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, refusal, tc.reason)
			assert.Equal(t, tc.holder, m.leases["x"].Holder, tc.reason)
		})
	}
}

// TestAdmitWaits for another that is in flight when it comes, in the time of a bubble.
func TestAdmitWaits(t *testing.T) {
	type want struct {
		refusal *Refusal
		took    time.Duration
	}
	inFlight := func(left time.Duration) *Refusal { return &Refusal{ClaimKind: "x", Class: other, RetryAfter: left} }
	for name, tc := range map[string]struct {
		reason  string
		after   time.Duration
		becomes Live // the other one, after that time
		timeout time.Duration
		dryRun  bool
		want    want
	}{
		"AtOnce": {
			reason:  "We should not wait for what is default already.",
			becomes: Live{UID: "other-1", Default: true},
			want:    want{refusal: inFlight(0)},
		},
		"Lands": {
			reason: "We should wait until the other is stored, and say who won.",
			after:  25 * time.Millisecond, becomes: Live{UID: "other-1", Default: true},
			want: want{refusal: inFlight(0), took: 30 * time.Millisecond},
		},
		"LandsAndIsUndone": {
			reason: "We should wait until the other is out of the way.",
			after:  25 * time.Millisecond, becomes: Live{UID: "other-1"},
			want: want{took: 30 * time.Millisecond},
		},
		"DoesNotLand": {
			reason: "We should give up in time to answer, and say how long it may yet take.",
			after:  time.Hour,
			want:   want{refusal: inFlight(window - patience), took: patience},
		},
		"DoesNotLandInADryRun": {
			reason: "We should answer a dry run as we would the request.",
			after:  time.Hour, dryRun: true,
			want: want{refusal: inFlight(window - patience), took: patience},
		},
		"NoTime": {
			reason: "We should answer what we know when there is no time left.",
			after:  time.Hour, timeout: 25 * time.Millisecond,
			want: want{refusal: inFlight(window - 10*time.Millisecond), took: 25 * time.Millisecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				held := heldByOther("", 0)
				held.Written = start
				m := newMemory(map[string]Lease{"x": held})
				m.disturb = func(context.Context, Op, int) error {
					if time.Since(start) >= tc.after {
						m.classes[other] = tc.becomes
					}
					return nil
				}
				ctx := t.Context()
				if tc.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.timeout)
					defer cancel()
				}
				request := newRequest("", "x")
				request.DryRun = tc.dryRun
				refusal, err := (&Protocol{Store: m, Now: time.Now}).Admit(ctx, request)
				require.NoError(t, err, tc.reason)
				assert.Equal(t, tc.want, want{refusal, time.Since(start)}, tc.reason)
				assert.LessOrEqual(t, time.Since(start), patience, "We should leave time to answer.")
			})
		})
	}
}

func TestAdmitReadsTheClockFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 2 * time.Second
		start := time.Now()
		held := heldByOther("", 0)
		held.Written = start.Add(slow/2 - window)
		m := newMemory(map[string]Lease{"x": held})
		m.disturb = func(_ context.Context, op Op, count int) error {
			if op.Kind == ReadLease && count == 1 {
				time.Sleep(slow) // In the bubble's time.
			}
			return nil
		}
		refusal, err := (&Protocol{Store: m, Now: time.Now}).Admit(t.Context(), newRequest("", "x"))
		require.NoError(t, err)
		assert.Nil(t, refusal)
		assert.Equal(t, start.Add(slow+firstWait), m.leases["x"].Written,
			"We should not count the time that it takes to read a Lease: only on a second look is the other's window over.")
	})
}

// TestAdmitLeavesNothing of what is refused, or cannot be answered, in the first Lease or the second.
func TestAdmitLeavesNothing(t *testing.T) {
	failure := errors.New("connection refused")
	failing := func(kind OpKind, claimKind string, n int) func(context.Context, *memory, Op, int) error {
		return func(_ context.Context, _ *memory, op Op, count int) error {
			if op.Kind == kind && op.ClaimKind == claimKind && count == n {
				return failure
			}
			return nil
		}
	}
	otherInFlight, otherDefault := heldByOther("", 0), heldByOther("10", 0)
	otherInFlight.Version = ""
	type want struct {
		refusal *Refusal
		err     string
		writes  int
		left    *Lease // in x; nil, what was there before
	}
	for name, tc := range map[string]struct {
		reason  string
		y       Lease
		live    Live // of the other
		dryRun  bool
		disturb func(context.Context, *memory, Op, int) error
		want    want
	}{
		"Refused": {
			reason: "We should put back the first Lease exactly as it was where we are refused the second.",
			y:      otherDefault, live: Live{UID: "other-1", Version: "11", Default: true},
			want: want{refusal: &Refusal{ClaimKind: "y", Class: other}, writes: 2},
		},
		"RefusedAfterALostRace": {
			reason: "We should put back the first Lease where another took the second meanwhile.",
			live:   Live{UID: "other-1", Version: "11", Default: true},
			disturb: func(_ context.Context, m *memory, op Op, count int) error {
				if op.Kind == WriteLease && op.ClaimKind == "y" && count == 1 {
					m.put("y", otherDefault)
				}
				return nil
			},
			want: want{refusal: &Refusal{ClaimKind: "y", Class: other}, writes: 2},
		},
		"RefusedWhileAnotherTookTheFirst": {
			reason: "We should put nothing back over what another wrote meanwhile.",
			y:      otherDefault, live: Live{UID: "other-1", Version: "11", Default: true},
			disturb: func(_ context.Context, m *memory, op Op, _ int) error {
				if op.Kind == ReadLease && op.ClaimKind == "y" {
					m.put("x", otherInFlight)
				}
				return nil
			},
			want: want{refusal: &Refusal{ClaimKind: "y", Class: other}, writes: 1, left: &otherInFlight},
		},
		"DryRun": {
			reason: "We should write nothing in a dry run, not even to put it back.",
			y:      otherDefault, live: Live{UID: "other-1", Version: "11", Default: true}, dryRun: true,
			want: want{refusal: &Refusal{ClaimKind: "y", Class: other}},
		},
		"FirstLeaseNotRead": {
			reason:  "We should say which Lease we cannot get.",
			disturb: failing(ReadLease, "x", 1),
			want:    want{err: `cannot get the Lease of claim kind "x": connection refused`},
		},
		"FirstLeaseNotWritten": {
			reason:  "We should say which Lease we cannot write.",
			disturb: failing(WriteLease, "x", 1),
			want:    want{err: `cannot write the Lease of claim kind "x": connection refused`},
		},
		"SecondLeaseNotRead": {
			reason:  "We should put back the first Lease where we cannot get the second.",
			disturb: failing(ReadLease, "y", 1),
			want:    want{err: `cannot get the Lease of claim kind "y": connection refused`, writes: 2},
		},
		"SecondLeaseNotWritten": {
			reason:  "We should put back the first Lease where we cannot write the second.",
			disturb: failing(WriteLease, "y", 1),
			want:    want{err: `cannot write the Lease of claim kind "y": connection refused`, writes: 2},
		},
		"ClassNotRead": {
			reason: "We should put back the first Lease where we cannot look at the holder of the second.",
			y:      otherDefault, disturb: failing(ReadClass, "y", 1),
			want: want{
				err: `cannot tell whether "silvers.example.org/team/other" is the default of claim kind "y": connection refused; ` +
					`let classbind read it, or delete the ClassKind "silvers.example.org"`, writes: 2,
			},
		},
		"NotPutBackAtFirst": {
			reason: "We should try once more to put back what we were refused.",
			y:      otherDefault, live: Live{UID: "other-1", Version: "11", Default: true},
			disturb: failing(WriteLease, "x", 2),
			want:    want{refusal: &Refusal{ClaimKind: "y", Class: other}, writes: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			leases := map[string]Lease{"x": settled}
			if tc.y != (Lease{}) {
				leases["y"] = tc.y
			}
			m := newMemory(leases)
			m.classes[other] = tc.live
			if tc.disturb != nil {
				m.disturb = func(ctx context.Context, op Op, count int) error { return tc.disturb(ctx, m, op, count) }
			}
			before := m.records()["x"]
			request := newRequest("", "x", "y")
			request.DryRun = tc.dryRun
			refusal, err := (&Protocol{Store: m, Now: atEpoch}).Admit(t.Context(), request)
			if tc.want.err != "" {
				require.EqualError(t, err, tc.want.err, tc.reason)
				require.ErrorIs(t, err, failure, tc.reason)
			} else {
				require.NoError(t, err, tc.reason)
			}
			assert.Equal(t, tc.want.refusal, refusal, tc.reason)
			if tc.want.left != nil {
				before = *tc.want.left
			}
			assert.Equal(t, before, m.records()["x"], tc.reason)
			assert.NotEqual(t, me, m.leases["y"].Holder.Class, tc.reason)
			assert.Equal(t, tc.want.writes, m.writes, tc.reason)
		})
	}
}

func TestAdmitPutsBackWhenThereIsNoTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := newMemory(map[string]Lease{"x": settled})
	before := m.records()
	m.disturb = func(_ context.Context, op Op, _ int) error {
		if op.Kind == ReadLease && op.ClaimKind == "y" {
			cancel() // The API server hangs up.
		}
		return nil
	}
	refusal, err := (&Protocol{Store: m, Now: atEpoch}).Admit(ctx, newRequest("", "x", "y"))
	require.ErrorIs(t, err, context.Canceled, "We should say that we cannot answer.")
	assert.Nil(t, refusal)
	assert.Equal(t, before, m.records(), "We should put back what we took all the same.")
}

func TestAdmitDoesNotPutBackForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(nil)
		failure := errors.New("connection refused")
		m.disturb = func(ctx context.Context, op Op, count int) error {
			if op.Kind == ReadLease && op.ClaimKind == "y" {
				return failure
			}
			if op.Kind == WriteLease && count == 2 { // The API server does not answer.
				<-ctx.Done()
			}
			return nil
		}
		start := time.Now()
		_, err := (&Protocol{Store: m, Now: time.Now}).Admit(t.Context(), newRequest("", "x", "y"))
		require.ErrorIs(t, err, failure, "We should say what went wrong first.")
		assert.Equal(t, putBackTimeout, time.Since(start), "We should give up.")
	})
}
