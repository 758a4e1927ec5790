package webhook

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// leased is a world in which the class gold is the default of partition b, and was that of
// other partitions before.
type leased struct {
	*tenants
	inventory *selector.Inventory
	guard     *Guard
}

func newLeased(t *testing.T) *leased {
	t.Helper()
	w := newTenants()
	w.apiServer.classes["tenantclasses.example.org//gold"] = tenantClass("gold", marked, `"tenant":"b","database":true`)
	i := w.inventory(t)
	return &leased{w, i, w.guard(i)}
}

// holds the Lease of a partition, and this replica has seen it.
func (w *leased) holds(t *testing.T, partition string) {
	t.Helper()
	l := newLease(claimKindName, "tenantclasses.example.org/gold", "gold-1", "1")
	l.Name, l.ResourceVersion, l.UID = partitionLease(partition), "7", "lease-uid"
	w.leases[l.Name] = l
	_, err := w.guard.store(nil).Lease(t.Context(), inventory.Seat{ClaimKind: claimKindName, Partition: partition})
	require.NoError(t, err)
	w.done = nil
}

// operations returns what was done with Leases.
func (w *leased) operations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.done)
}

func (w *leased) left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.leases))
}

// TestCollectLeases of partitions that a class has left.
func TestCollectLeases(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*leased)
		want   []string
	}{
		"Left": {"We should delete the Leases of seats without a default, and no other.", func(*leased) {}, []string{partitionLease("b")}},
		"Unheard": {"We should keep the Leases of a claim kind that we have not heard of yet.", func(w *leased) {
			w.guard.ClaimKind = asClaimKind(true, nil)
			w.guard.Snapshot = func() selector.Snapshot { return selector.Snapshot{} }
		}, []string{partitionLease("a"), partitionLease("b")}},
		"Unread": {"We should keep the Leases of a claim kind if we cannot ask whether it is registered.", func(w *leased) {
			w.guard.ClaimKind = asClaimKind(false, errors.New("no answer"))
			w.guard.Snapshot = func() selector.Snapshot { return selector.Snapshot{} }
		}, []string{partitionLease("a"), partitionLease("b")}},
		"NoClaimKind": {"We should delete the Leases of a claim kind that is registered no more.", func(w *leased) {
			w.guard.Snapshot = func() selector.Snapshot { return selector.Snapshot{} }
		}, []string{}},
		"Missing": {"We should keep the Leases of a claim kind of which we do not know all classes.", func(w *leased) {
			w.inventory.SetMissing("silverclasses.example.org", []string{claimKindName}, "no answer")
		}, []string{partitionLease("a"), partitionLease("b")}},
		"NotStarted": {"We should keep all Leases before we know anything.", func(w *leased) {
			w.guard.Snapshot = func() selector.Snapshot { return nil }
		}, []string{partitionLease("a"), partitionLease("b")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLeased(t)
				w.holds(t, "a")
				w.holds(t, "b")
				tc.change(w)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { assert.NoError(t, w.guard.CollectLeases(ctx)) }()
				time.Sleep(w.guard.Window - time.Second)
				synctest.Wait()
				assert.Empty(t, w.operations(), "We should not even read a Lease whose write may be in flight.")
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.ElementsMatch(t, tc.want, w.left(), tc.reason)
				if name == "Left" {
					assert.NotContains(t, w.operations(), "get "+partitionLease("b"), "We should read no Lease of a default: there may be thousands.")
				}
			})
		})
	}
}

func TestCollectLeasesByAndBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeased(t)
		for n := range v1beta1.MaxLeasesCollected + 1 {
			w.holds(t, strconv.Itoa(n))
		}
		time.Sleep(w.guard.Window)
		w.guard.collectLeases(t.Context())
		assert.Len(t, w.leases, 1, "We should leave some for the next round.")
		w.guard.collectLeases(t.Context())
		assert.Empty(t, w.leases)
	})
}
