package onedefault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/webhook/leasetest"
)

// memory is an API server with Leases and classes.
type memory struct {
	*leasetest.Leases
	// disturb is called before each operation. count is the number of operations of its kind for the seat, with this one. Its error becomes
	// the operation's.
	disturb func(ctx context.Context, op Op, count int) error
	// latency of each operation.
	latency time.Duration

	mu      sync.Mutex // guards all below
	classes map[Class]Live
	counts  map[string]int
	reads   map[Class]int
}

func (m *memory) begin(ctx context.Context, op Op) error {
	m.mu.Lock()
	key := op.Seat.ClaimKind + strconv.Itoa(int(op.Kind))
	m.counts[key]++
	count := m.counts[key]
	m.mu.Unlock()
	if m.latency > 0 {
		select {
		case <-time.After(m.latency):
		case <-ctx.Done():
		}
	}
	if m.disturb != nil {
		if err := m.disturb(ctx, op, count); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (m *memory) live(ctx context.Context, c Class) (Live, error) {
	err := m.begin(ctx, Op{Kind: ReadClass, Class: c})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads[c]++
	return m.classes[c], err
}

// put a Lease over any version.
func (m *memory) put(claimKind string, l Lease) { m.Put(encode(seat(claimKind), l)) }

// becomes what is stored of a class.
func (m *memory) becomes(c Class, l Live) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.classes[c] = l
}

func (m *memory) lease(claimKind string) *coordinationv1.Lease {
	return m.All[LeaseName(seat(claimKind))]
}

func (m *memory) admit(ctx context.Context, r *Request) (*Refusal, error) {
	c := &Cluster{Leases: m, Live: m.live, Sightings: NewSightings(), Window: window}
	return c.Admit(ctx, r)
}

func newMemory() *memory {
	m := &memory{Leases: leasetest.New(), classes: map[Class]Live{}, counts: map[string]int{}, reads: map[Class]int{}}
	m.Before = func(ctx context.Context, verb string, l *coordinationv1.Lease) error {
		op := Op{Kind: WriteLease, Seat: seat(ClaimKindOf(l.Name))}
		if verb == "get" {
			op.Kind = ReadLease
		} else if verb != "delete" {
			op.Lease, _ = decode(l) // It is ours.
		}
		return m.begin(ctx, op)
	}
	return m
}

var (
	otherInFlight = held(other, pending("o", "", window))
	otherDefault  = Live{UID: "other-1", Version: "11", Seats: seats("x", "y")}
)

// TestAdmitWaits for another request that is in flight, in synctest time.
func TestAdmitWaits(t *testing.T) {
	type want struct {
		reason  Reason
		refused bool
		took    time.Duration
	}
	for name, tc := range map[string]struct {
		reason  string
		after   time.Duration
		becomes Live // the other one, after that time
		timeout time.Duration
		dryRun  bool
		want    want
	}{
		"AtOnce": {reason: "We should not wait for what is default already.", becomes: otherDefault, want: want{refused: true}},
		"Lands": {
			reason:  "We should wait until the other is stored, and say who won.",
			after:   25 * time.Millisecond,
			becomes: otherDefault,
			want:    want{refused: true, took: 30 * time.Millisecond},
		},
		"LandsAndIsUndone": {
			reason:  "We should wait until the other is out of the way.",
			after:   25 * time.Millisecond,
			becomes: Live{UID: "other-1"},
			want:    want{took: 30 * time.Millisecond},
		},
		"DoesNotLand":          {reason: "We should give up in time to answer.", after: time.Hour, want: want{InFlight, true, maxWait}},
		"DoesNotLandInADryRun": {reason: "We should answer a dry run as we would the request.", after: time.Hour, dryRun: true, want: want{InFlight, true, maxWait}},
		"NoTime": {
			reason:  "We should answer what we know when there is no time left.",
			after:   time.Hour,
			timeout: 25 * time.Millisecond,
			want:    want{InFlight, true, 25 * time.Millisecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, m := time.Now(), newMemory()
				m.put("x", otherInFlight)
				m.disturb = func(context.Context, Op, int) error {
					if time.Since(start) >= tc.after {
						m.becomes(other, tc.becomes)
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
				refusal, err := m.admit(ctx, request)
				require.NoError(t, err, tc.reason)
				got := want{refused: refusal != nil, took: time.Since(start)}
				if refusal != nil {
					got.reason = refusal.Reason
				}
				assert.Equal(t, tc.want, got, tc.reason)
			})
		})
	}
}

// TestAdmitLeavesNothing of what is refused, or cannot be answered.
func TestAdmitLeavesNothing(t *testing.T) {
	failure := errors.New("connection refused")
	failing := func(kind OpKind, claimKind string, n int) func(context.Context, *memory, Op, int) error {
		return func(_ context.Context, _ *memory, op Op, count int) error {
			if op.Kind == kind && (kind == ReadClass || op.Seat == seat(claimKind)) && count == n {
				return failure
			}
			return nil
		}
	}
	// overtake takes y before it is written.
	overtake := func(then func(context.Context, *memory, Op, int) error) func(context.Context, *memory, Op, int) error {
		return func(ctx context.Context, m *memory, op Op, count int) error {
			if op.Kind == WriteLease && op.Seat == seat("y") && count == 1 {
				m.put("y", otherInFlight)
				m.becomes(other, otherDefault)
			}
			return then(ctx, m, op, count)
		}
	}
	nothing := func(context.Context, *memory, Op, int) error { return nil }
	second := &Refusal{Reason: Taken, Seat: seat("y"), Class: other}
	type want struct {
		refusal *Refusal
		err     string
		writes  int
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
			reason: "We should write nothing where a seat is taken.",
			y:      otherInFlight,
			live:   otherDefault,
			want:   want{refusal: second},
		},
		"RefusedDryRun": {
			reason: "We should write nothing in a dry run.",
			y:      otherInFlight,
			live:   otherDefault,
			dryRun: true,
			want:   want{refusal: second},
		},
		"Overtaken": {
			reason:  "We should take out what we wrote where another was faster.",
			disturb: overtake(nothing),
			want:    want{refusal: second, writes: 2},
		},
		"OvertakenAndNotTakenOutAtFirst": {
			reason:  "We should try once more to take out what we wrote.",
			disturb: overtake(failing(WriteLease, "x", 2)),
			want:    want{refusal: second, writes: 2},
		},
		"OvertakenAndNotReadAgain": {
			reason:  "We should take out what we wrote where we cannot look again.",
			disturb: overtake(failing(ReadLease, "x", 2)),
			want:    want{err: `cannot get the Lease of claim kind "x": connection refused`, writes: 2},
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
			reason:  "We should write nothing where we cannot get a Lease.",
			disturb: failing(ReadLease, "y", 1),
			want:    want{err: `cannot get the Lease of claim kind "y": connection refused`},
		},
		"SecondLeaseNotWritten": {
			reason:  "We should take out the first write where we cannot do the second.",
			disturb: failing(WriteLease, "y", 1),
			want:    want{err: `cannot write the Lease of claim kind "y": connection refused`, writes: 2},
		},
		"ClassNotRead": {
			reason:  "We should say which class we cannot read.",
			disturb: failing(ReadClass, "", 1),
			want:    want{err: `cannot determine whether "golds.example.org/me" is a default class: connection refused; try again`},
		},
		"ClassForbidden": {
			reason: "We should say that we need a right where that is what is missing.",
			disturb: func(_ context.Context, _ *memory, op Op, _ int) error {
				if op.Kind != ReadClass {
					return nil
				}
				return fmt.Errorf("%w: %w", failure, apierrors.NewForbidden(schema.GroupResource{Resource: "golds"}, "me", errors.New("no")))
			},
			want: want{
				err: `cannot determine whether "golds.example.org/me" is a default class: connection refused: golds "me" is forbidden: no; let classbind ` +
					`read it, or delete the ClassKind "golds.example.org"`,
			},
		},
		"WrittenAllTheSame": {
			reason: "We should take out what was written though we were not told.",
			disturb: func(_ context.Context, m *memory, op Op, count int) error {
				if op.Kind == WriteLease && op.Seat == seat("x") && count == 1 {
					m.put("x", op.Lease)
					return failure
				}
				return nil
			},
			want: want{err: `cannot write the Lease of claim kind "x": connection refused`, writes: 1},
		},
		"SentTwice": {
			reason: "We should take out what was written though we were told that it was not, and refused when we looked again.",
			disturb: func(_ context.Context, m *memory, op Op, count int) error {
				if op.Kind == WriteLease && op.Seat == seat("x") && count == 1 {
					m.put("x", op.Lease)
					m.becomes(me, Live{UID: "me-0", Version: "1"})
					return apierrors.NewConflict(leasetest.Resource, "x", nil)
				}
				return nil
			},
			want: want{refusal: &Refusal{Reason: Exists, Class: me}, writes: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			if tc.y.Holder.UID != "" {
				m.put("y", tc.y)
			}
			m.classes[other] = tc.live
			if tc.disturb != nil {
				m.disturb = func(ctx context.Context, op Op, count int) error { return tc.disturb(ctx, m, op, count) }
			}
			request := newRequest("", "x", "y")
			request.DryRun = tc.dryRun
			refusal, err := m.admit(t.Context(), request)
			if tc.want.err != "" {
				require.EqualError(t, err, tc.want.err, tc.reason)
				require.ErrorIs(t, err, failure, tc.reason)
			} else {
				require.NoError(t, err, tc.reason)
			}
			assert.Equal(t, tc.want.refusal, refusal, tc.reason)
			assert.Equal(t, tc.want.writes, m.Writes, tc.reason)
			for name, l := range m.All {
				assert.NotEqual(t, me.String(), *l.Spec.HolderIdentity, "%s: %s", name, tc.reason)
			}
		})
	}
}

// TestAdmitManySeats admits a class that serves as many claim kinds as a ClassKind may, with an API server that takes 15 ms per call.
func TestAdmitManySeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = 2500 * time.Millisecond
		m := newMemory()
		m.latency = 15 * time.Millisecond
		request := newRequest("10")
		for i := range 64 {
			s := seat(fmt.Sprintf("claims-%02d", i))
			request.Seats = append(request.Seats, s)
			m.put(s.ClaimKind, held(other, pending("o", "10", window)))
		}
		m.classes[me], m.classes[other] = Live{UID: "me-1", Version: "10"}, Live{UID: "other-1", Version: "11"}
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		start := time.Now()
		refusal, err := m.admit(ctx, request)
		require.NoError(t, err, "We should be in time.")
		assert.Nil(t, refusal)
		// 64 reads, 16 at once, two classes at once, and one write after the other.
		assert.Equal(t, (4+1+64)*m.latency, time.Since(start))
		assert.Equal(t, map[Class]int{me: 1, other: 1}, m.reads, "We should read each class once.")
	})
}

func TestAdmitTakesOutWhenThereIsNoTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := newMemory()
	m.disturb = func(_ context.Context, op Op, _ int) error {
		if op.Kind == WriteLease && op.Seat == seat("y") {
			cancel() // The API server hangs up.
		}
		return nil
	}
	refusal, err := m.admit(ctx, newRequest("", "x", "y"))
	require.ErrorIs(t, err, context.Canceled, "We should say that we cannot answer.")
	assert.Nil(t, refusal)
	assert.Nil(t, m.lease("x"), "We should take out what we wrote all the same.")
}

func TestAdmitDoesNotTakeOutForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		failure := errors.New("connection refused")
		m.disturb = func(ctx context.Context, op Op, count int) error {
			if op.Kind == WriteLease && op.Seat == seat("y") {
				return failure
			}
			if op.Kind == WriteLease && count == 2 { // The API server does not answer.
				<-ctx.Done()
			}
			return nil
		}
		start := time.Now()
		_, err := m.admit(t.Context(), newRequest("", "x", "y"))
		require.ErrorIs(t, err, failure, "We should say what went wrong first.")
		assert.Equal(t, takeOutTimeout, time.Since(start), "We should give up.")
	})
}
