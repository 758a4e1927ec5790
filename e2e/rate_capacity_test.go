package e2e

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/webhook/capacity"
)

// TestCapacityRate measures what a reservation costs, and holds the size of a ledger.
func TestCapacityRate(t *testing.T) {
	t.Parallel()
	const group, n = "rate.test", 10
	classes := map[string]string{}
	for i := range n {
		classes[fmt.Sprint("class-", i)] = "classbind.io/capacity: 1M"
	}
	w := hardWorld(t, group, "{reference: {path: .spec.classRef}, selector: {whenAbsent: Any}}", classes)
	create := func(name, reference string) time.Duration {
		began := time.Now()
		require.NoError(t, w.Create(t.Context(), naming(group, "default", name, reference)))
		return time.Since(began)
	}
	w.resources(t, "Claim claims.free.test Namespaced", "Class classes.free.test Cluster")
	w.apply(t, lateVendor("free.test")+claimKind("claims.free.test", "{reference: {path: .spec.classRef}, selector: {whenAbsent: Any}}")+
		classKind("classes.free.test", "{claimKinds: [{name: claims.free.test}]}")+class("free.test", "Class", "free", ""))
	w.awaitClaims(t, "claims.free.test")
	var took, without []time.Duration
	for i := range 200 {
		took = append(took, create(fmt.Sprint("alone-", i), ""))
		began := time.Now()
		require.NoError(t, w.Create(t.Context(), naming("free.test", "default", fmt.Sprint("alone-", i), "")))
		without = append(without, time.Since(began))
	}
	slices.Sort(took)
	slices.Sort(without)
	t.Logf("a create took %v (p50), %v (p99); without a capacity %v and %v", took[100], took[198], without[100], without[198])
	for what, reference := range map[string]string{"ten": "", "one": "apiVersion=rate.test/v1 kind=Class name=class-0"} {
		began, largest := time.Now(), atomic.Int64{}
		const claims = 2000
		concurrently(t, claims, func(i int) error {
			if i%20 == 0 {
				l := &v1beta1.Ledger{}
				key := client.ObjectKey{Namespace: classbind.Namespace, Name: capacity.NameOf("classes."+group, "", "class-0")}
				if err := w.Get(t.Context(), key, l); err != nil {
					return err
				}
				largest.Store(max(largest.Load(), int64(len(l.Spec.Reservations))))
			}
			return w.Create(t.Context(), naming(group, "default", fmt.Sprint(what, "-", i), reference))
		})
		t.Logf("%s: %.0f creates a second, at most %d reservations of class-0", what, claims/time.Since(began).Seconds(), largest.Load())
	}
	used := int64(0)
	for name := range classes {
		w.awaitLedger(t, group, name, func(col *assert.CollectT, l *v1beta1.Ledger) { assert.Zero(col, l.Spec.Reserved) })
		l := &v1beta1.Ledger{}
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: capacity.NameOf("classes."+group, "", name)}, l))
		used += l.Spec.Used
	}
	assert.EqualValues(t, 4200, used)
}
