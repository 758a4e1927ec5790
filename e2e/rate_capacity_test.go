package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/webhook/capacity"
)

// TestCapacityRate measures what a reservation costs, and holds the size of a ledger. make rate runs it alone.
func TestCapacityRate(t *testing.T) {
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
	var mu sync.Mutex
	reservations, size := 0, 0
	key := client.ObjectKey{Namespace: classbind.Namespace, Name: capacity.NameOf("classes."+group, "", "class-0")}
	for _, phase := range []struct {
		what, group, reference string
		clients                int
	}{
		{"none", "free.test", "", 16},
		{"ten", group, "", 16},
		{"ten", group, "", 64},
		{"one", group, "apiVersion=rate.test/v1 kind=Class name=class-0", 16},
		{"one", group, "apiVersion=rate.test/v1 kind=Class name=class-0", 64},
	} {
		began := time.Now()
		const claims = 2000
		var all errgroup.Group
		all.SetLimit(phase.clients)
		for i := range claims {
			all.Go(func() error {
				if i%50 == 0 {
					l := &v1beta1.Ledger{}
					if err := w.Get(t.Context(), key, l); err != nil {
						return err
					}
					text, _ := json.Marshal(l)
					mu.Lock()
					reservations, size = max(reservations, len(l.Spec.Reservations)), max(size, len(text))
					mu.Unlock()
				}
				return w.Create(t.Context(), naming(phase.group, "default", fmt.Sprint(phase.what, "-", phase.clients, "-", i), phase.reference))
			})
		}
		require.NoError(t, all.Wait())
		t.Logf("classes with a capacity: %s; %d clients: %.0f creates a second", phase.what, phase.clients, claims/time.Since(began).Seconds())
	}
	t.Logf("the ledger of a class had at most %d reservations and %d bytes", reservations, size)
	assert.Less(t, size, 100<<10)
	used := int64(0)
	for name := range classes {
		w.awaitLedger(t, group, name, func(col *attempt, l *v1beta1.Ledger) { assert.Zero(col, l.Spec.Reserved) })
		l := &v1beta1.Ledger{}
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: capacity.NameOf("classes."+group, "", name)}, l))
		used += l.Spec.Used
	}
	assert.EqualValues(t, 8200, used)
}
