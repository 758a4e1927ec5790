package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

func (w *world) registerCapacity(t *testing.T, group, spec, capacity, classes string, n int) {
	claims, kind := "claims."+group, "classes."+group
	w.resources(t, "Claim "+claims+" Namespaced", "Class "+kind+" Cluster")
	w.apply(t, lateVendor(group)+claimKind(claims, spec)+classKind(kind, "{claimKinds: [{name: "+claims+"}], capacity: "+capacity+"}")+classes)
	w.awaitClaims(t, claims)
	w.awaitClasses(t, kind, n)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionClaimsCounted, metav1.ConditionTrue, "")
}

// TestCapacity has classes that hold only so much, as one replica counts it.
func TestCapacity(t *testing.T) {
	notInPods(t, "Each of several replicas counts for itself.")
	t.Parallel()
	w := sharedWorld(t)
	t.Run("Soft", func(t *testing.T) {
		const group = "capacity.test"
		classes := ""
		for _, name := range []string{"gold", "silver", "bronze"} {
			classes += class(group, "Class", name, `annotations: {classbind.io/capacity: "10"}, `)
		}
		w.registerCapacity(t, group, "{}", "{}", classes, 3)
		bound := map[string]int{}
		for i := range 60 {
			claim, warnings := w.warned(t, claim(group, fmt.Sprint("claim-", i)))
			if bound[classOf(claim)]++; classOf(claim) == "" {
				require.Len(t, warnings, 1)
				require.Contains(t, warnings[0], "dropped: 3 full): wait until a class has room, or ")
			}
		}
		assert.Equal(t, map[string]int{"Class/gold": 10, "Class/silver": 10, "Class/bronze": 10, "": 30}, bound)
		claims := w.claimsOf(t, group)
		for i := range claims {
			if classOf(&claims[i]) == "Class/silver" {
				require.NoError(t, w.Delete(t.Context(), &claims[i]))
				break
			}
		}
		w.awaitBound(t, claim(group, "probe"), "Class/silver", "A deleted claim should make room.")
		w.binds(t, claim(group, "next"), "Class/silver", "The next claim should have it.")
		w.binds(t, claim(group, "last"), "", "And no other.")

		w.apply(t, class(group, "Class", "gold", `annotations: {classbind.io/capacity: "much"}, `))
		w.awaitCondition(t, &v1beta1.ClassKind{}, "classes."+group, v1beta1.ConditionCapacitiesValid, metav1.ConditionFalse, `1 class has a malformed capacity: Class/gold; the first: `)
		w.apply(t, class(group, "Class", "gold", `annotations: {classbind.io/capacity: "11"}, `))
		w.awaitCondition(t, &v1beta1.ClassKind{}, "classes."+group, v1beta1.ConditionCapacitiesValid, metav1.ConditionTrue, "")
		w.awaitBound(t, claim(group, "probe"), "Class/gold", "A class that holds more should take more.")
	})

	t.Run("Usage", func(t *testing.T) {
		const group = "storage.capacity.test"
		w.registerCapacity(t, group, "{classes: {usage: claim.spec.storage}}", "{total: {path: .spec.capacity}, perNamespace: {expression: class.spec.share}}",
			class(group, "Class", "disk", "")+"spec: {capacity: 10Gi, share: 6Gi}\n", 1)
		for _, namespace := range []string{"capacity-a", "capacity-b", "capacity-c"} {
			w.kubectl(t, "create", "namespace", namespace)
		}
		of := func(namespace, name, storage string) string {
			return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: %s, name: %s}\nspec: {storage: %s, classSelector: {}}\n", group, namespace, name, storage)
		}
		w.binds(t, of("capacity-a", "first", "4Gi"), "Class/disk", "There is room.")
		w.binds(t, of("capacity-a", "second", "4Gi"), "", "The namespace may use 6Gi.")
		w.binds(t, of("capacity-a", "third", "2Gi"), "Class/disk", "There are 2Gi left for the namespace.")
		w.binds(t, of("capacity-b", "first", "6Gi"), "", "There are 4Gi left for all.")
		w.binds(t, of("capacity-b", "second", "3.5Gi"), "Class/disk", "There is room.")
		w.binds(t, of("capacity-c", "first", "1Gi"), "", "There is half of that left.")
		for _, storage := range []string{"much", "-1", "9007199254740994", "{}"} {
			_, _, err := w.create(t, of("capacity-c", "malformed", storage))
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, "spec.storage: Invalid value: the expression spec.classes.usage of claim kind")
		}
	})

	t.Run("BindLater", func(t *testing.T) {
		const group = "late.capacity.test"
		w.registerCapacity(t, group, "{whenUnmatched: BindLater, reference: {path: .spec.classRef, explicit: Check}}", "{}",
			class(group, "Class", "only", `annotations: {classbind.io/capacity: "1"}, `), 1)
		first := w.binds(t, claim(group, "first"), "Class/only", "We should let pass what we gave ourselves.")
		second := w.binds(t, claim(group, "second"), "", "The class is full.")
		named := "apiVersion: " + group + "/v1\nkind: Claim\nmetadata: {namespace: default, name: named}\nspec: {classRef: {apiVersion: " + group + "/v1, kind: Class, name: only}}\n"
		w.awaitRefused(t, named, `it names the class "Class/only", which is full`, "We should check the room of a class that a claim names.")
		w.awaitWaiting(t, "claims."+group, 1)
		require.NoError(t, w.Delete(t.Context(), first))
		eventually(t, func(c *attempt) {
			require.NoError(c, w.Get(t.Context(), client.ObjectKeyFromObject(second), second))
			require.Equal(c, "Class/only", classOf(second))
		}, "A claim that waits should get the room that another leaves.")
	})
}

// TestCapacitySoft has clients of several replicas fill classes: each replica counts a claim of another once it is stored.
func TestCapacitySoft(t *testing.T) {
	long(t)
	t.Parallel()
	const group, n, holds, inFlight = "soft.test", 10, 50, 16
	w := newWorld(t, controlplane.Options{})
	w.serveBehind(t, 3)
	classes := ""
	for i := range n {
		classes += class(group, "Class", fmt.Sprint("class-", i), fmt.Sprintf("annotations: {classbind.io/capacity: %q}, ", fmt.Sprint(holds)))
	}
	w.registerCapacity(t, group, "{selector: {whenAbsent: Any}}", "{}", classes, n)
	concurrently(t, n*holds*3/2, func(i int) error { return w.Create(t.Context(), naming(group, "default", fmt.Sprint("claim-", i), "")) })
	used, over, most := map[string]int{}, 0, 0
	for _, claim := range w.claimsOf(t, group) {
		used[classOf(&claim)]++
	}
	for name, amount := range used {
		if name != "" {
			assert.GreaterOrEqual(t, amount, holds, "We should fill %s.", name)
			over, most = over+amount-holds, max(most, amount-holds)
		}
	}
	t.Logf("with %d clients and 3 replicas, %d classes of %d have %d claims more than they hold in all, and %d at most", inFlight, n, holds, over, most)
	assert.Len(t, used, n+1, "We should use every class, and leave some claims without.")
	assert.LessOrEqual(t, most, inFlight, "We should give no more than what is in flight.")
}
