package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
)

// slowLeases count concurrent reads.
type slowLeases struct {
	coordinationclient.LeaseInterface
	takes time.Duration

	mu         sync.Mutex // guards all below
	busy, most int
}

func (s *slowLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	s.count(1)
	defer s.count(-1)
	select {
	case <-time.After(s.takes):
		return s.LeaseInterface.Get(ctx, name, o)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *slowLeases) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += n
	s.most = max(s.most, s.busy)
}

// forged creations of default classes, each with a name of its own.
func forged(kind *inventory.ClassKind, metadata, rest string, many int) []*admissionv1.AdmissionRequest {
	requests := make([]*admissionv1.AdmissionRequest, many)
	for i := range requests {
		requests[i] = newGuardRequest(kind, "", object(fmt.Sprintf("forged-%d", i), metadata, rest))
	}
	return requests
}

// TestGuardReviewsTakeTurns floods the guard with forged reviews while the seat is held,
// so that each would wait for the holder.
func TestGuardReviewsTakeTurns(t *testing.T) {
	const many = v1beta1.MaxWaitingGuardReviewsOfNamespace - 1
	for name, tc := range map[string]struct {
		reason string
		flood  [][]*admissionv1.AdmissionRequest
		most   int // reads of Leases at once: that of a PathClass has two
	}{
		"OtherKind": {
			reason: "We should read for half as many reviews of one kind, and for the one of another.",
			flood:  [][]*admissionv1.AdmissionRequest{forged(sqlClasses, marked, "", many)},
			most:   v1beta1.MaxGuardReviewsOfNamespace + 2,
		},
		"TwoOtherKinds": {
			reason: "We should read for so many reviews at once, and no more.",
			flood:  [][]*admissionv1.AdmissionRequest{forged(sqlClasses, marked, "", many), forged(rdsClasses, markedInAWS, "", many)},
			most:   v1beta1.MaxGuardReviews + 1,
		},
		"SameKind": {
			reason: "We should have no review wait for those that wait for a seat.",
			flood:  [][]*admissionv1.AdmissionRequest{forged(pathClasses, "", `,"spec":{"isDefault":true}`, many)},
			most:   2 * v1beta1.MaxGuardReviewsOfNamespace,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer()
				s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "")
				guard := s.guard(newInventory(newClaimKind()))
				leases := &slowLeases{LeaseInterface: guard.Leases, takes: 5 * time.Millisecond}
				guard.Leases = leases
				var flood sync.WaitGroup
				for _, request := range slices.Concat(tc.flood...) {
					flood.Go(func() {
						_, err := guard.Review(t.Context(), request)
						assert.NoError(t, err, "We should get to each in its turn.")
					})
				}
				synctest.Wait()
				begin := time.Now()
				response, err := guard.Review(t.Context(), newGuardRequest(pathClasses, "", pathMarked))
				took := time.Since(begin)
				flood.Wait()
				require.NoError(t, err, tc.reason)
				assert.Equal(t, "DefaultInFlight", response.AuditAnnotations["reason"], tc.reason)
				assert.Less(t, took, time.Second, tc.reason)
				assert.Equal(t, tc.most, leases.most, tc.reason)
			})
		})
	}
}

// TestGuardReviewsBeyondThoseThatWait are refused at once, so that waiting reviews do not
// take all connections.
func TestGuardReviewsBeyondThoseThatWait(t *testing.T) {
	for name, tc := range map[string]struct {
		reason           string
		namespaces, each int
		wait             int
	}{
		"OneNamespace":   {"We should have no more wait of one namespace.", 1, 1000, v1beta1.MaxWaitingGuardReviewsOfNamespace},
		"TwoNamespaces":  {"We should have as many wait of each.", 2, 500, 2 * v1beta1.MaxWaitingGuardReviewsOfNamespace},
		"ManyNamespaces": {"We should have no more wait of all namespaces.", 1000, 1, v1beta1.MaxWaitingGuardReviews},
		"Few":            {"We should have them wait where they are few.", 20, 2, 40},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := fair.NewLimiter(guardLimits)
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				begin := time.Now()
				var flood sync.WaitGroup
				var refused atomic.Int64
				for i := range tc.namespaces * tc.each {
					flood.Go(func() {
						done, err := limiter.Take(ctx, fmt.Sprint(i%tc.namespaces))
						if err == nil {
							<-ctx.Done()
							done()
						} else if !errors.Is(err, context.DeadlineExceeded) && assert.Zero(t, time.Since(begin)) {
							refused.Add(1)
						}
					})
				}
				flood.Wait()
				assert.EqualValues(t, tc.namespaces*tc.each-tc.wait, refused.Load(), tc.reason)
				done, err := limiter.Take(ctx, "")
				require.NoError(t, err, "We should forget those who are gone.")
				done()
			})
		})
	}
}

// TestGuardReviewsThatWait for an API server that does not answer.
func TestGuardReviewsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newAPIServer().guard(newInventory(newClaimKind()))
		leases := &slowLeases{LeaseInterface: guard.Leases, takes: time.Hour}
		guard.Leases = leases
		var flood sync.WaitGroup
		var failed, late atomic.Int64
		for _, request := range slices.Concat(forged(sqlClasses, marked, "", 100), forged(rdsClasses, markedInAWS, "", 100)) {
			flood.Go(func() {
				_, err := guard.Review(t.Context(), request)
				if err != nil {
					failed.Add(1)
				}
				if errors.Is(err, errTooManyDefaults) {
					late.Add(1)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		for want, request := range map[string]*admissionv1.AdmissionRequest{
			"NotRegistered":   newGuardRequest(sqlClasses, "", "", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "others" }),
			"BeingDeleted":    newGuardRequest(sqlClasses, silver, object("silver", beingDeleted+marked, "")),
			"MalformedWeight": newGuardRequest(sqlClasses, "", object("silver", `,"annotations":{"default":"true","weight":"much"}`, "")),
			"NotDefault":      newGuardRequest(sqlClasses, silverMarked, silver),
			"DefaultAlready":  newGuardRequest(sqlClasses, silverMarked, silverMarked),
		} {
			response, err := guard.Review(t.Context(), request)
			require.NoError(t, err)
			assert.Equal(t, want, response.AuditAnnotations["reason"])
		}
		_, err := guard.Review(t.Context(), newGuardRequest(sqlClasses, "", "{}"))
		require.ErrorAs(t, err, new(*badRequest))
		assert.Zero(t, time.Since(begin), "We should answer at once what needs no API server.")
		flood.Wait()
		assert.Equal(t, deadline, time.Since(begin), "We should have nobody wait for longer.")
		assert.Equal(t, v1beta1.MaxGuardReviews, leases.most, "We should ask for those who have a turn.")
		assert.EqualValues(t, 200, failed.Load(), "We should admit nothing that we cannot judge.")
		assert.Positive(t, late.Load(), "We should say why we cannot answer the others.")
	})
}

// TestCostlyDecisions of a namespace that has more than its share: to answer that we cannot
// would let its claims pass without a class under Ignore.
func TestCostlyDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inventory := newInventory(newClaimKind(), index(sqlClasses))
		setCostly(inventory)
		b := newBinder(t, inventory)
		b.Metrics = NewMetrics(inventory.Snapshot)
		b.Decider.Live, b.Decider.Costly = nil, CostlyDecisions()
		request := newRequest(wantsGold)
		done, err := b.Decider.Costly(t.Context(), request.Namespace)
		require.NoError(t, err)
		response, afterwards, err := b.Review(t.Context(), claimKindName, request)
		require.NoError(t, err)
		afterwards()
		assert.False(t, response.Allowed)
		assert.EqualValues(t, http.StatusTooManyRequests, response.Result.Code)
		assert.EqualValues(t, 1, response.Result.Details.RetryAfterSeconds, "We should have clients try again.")
		assert.Contains(t, response.Result.Message, "too many claims of this namespace")
		assert.Contains(t, counted(t, b.Metrics), fmt.Sprintf(decided, "throttled"))
		request.Namespace = "other"
		response, _, err = b.Review(t.Context(), claimKindName, request)
		require.NoError(t, err)
		assert.True(t, response.Allowed, "We should decide on the claims of others.")
		done()
		time.Sleep(time.Second)
		request.Namespace = newRequest(wantsGold).Namespace
		response, _, err = b.Review(t.Context(), claimKindName, request)
		require.NoError(t, err)
		assert.True(t, response.Allowed)
	})
}
