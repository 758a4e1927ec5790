package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

func (w *world) registerCapacity(t *testing.T, group, spec, capacity, classes string) {
	w.serves(t, kinds(group, spec)+classKind("classes."+group, "{claimKinds: [{name: claims."+group+"}], capacity: "+capacity+"}")+classes)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ConditionClaimsCounted, metav1.ConditionTrue, "")
}

// TestCapacity has classes that hold only so much, as one replica counts it.
func TestCapacity(t *testing.T) {
	notInPods(t, "Each of several replicas counts for itself.")
	w := sharedWorld(t)
	t.Run("Full", func(t *testing.T) {
		const group = "capacity.test"
		classes := ""
		for _, name := range []string{"gold", "silver", "bronze"} {
			classes += class(group, "Class", name, `annotations: {classbind.io/capacity: "10"}, `)
		}
		w.registerCapacity(t, group, "{}", "[{name: claims}]", classes)
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
		silver := slices.IndexFunc(claims, func(c unstructured.Unstructured) bool { return classOf(&c) == "Class/silver" })
		require.NoError(t, w.Delete(t.Context(), &claims[silver]))
		w.awaitBound(t, claim(group, "probe"), "Class/silver", "A deleted claim should make room.")
		w.binds(t, claim(group, "next"), "Class/silver", "The next claim should have it.")
		w.binds(t, claim(group, "last"), "", "And no other.")

		w.apply(t, class(group, "Class", "gold", `annotations: {classbind.io/capacity: "much"}, `))
		w.awaitCondition(
			t, &v1beta1.ClassKind{}, "classes."+group, v1beta1.ConditionCapacitiesValid, metav1.ConditionFalse,
			`classes with a malformed capacity: Class/gold; the first: `,
		)
		w.apply(t, class(group, "Class", "gold", `annotations: {classbind.io/capacity: "11"}, `))
		w.awaitBound(t, claim(group, "probe"), "Class/gold", "A class that holds more should take more.")
	})

	t.Run("Usage", func(t *testing.T) {
		const group = "storage.capacity.test"
		w.registerCapacity(t, group, "{classes: {usage: [{name: storage, expression: claim.spec.storage}]}}",
			"[{name: storage, total: {path: .spec.capacity}, perNamespace: {expression: class.spec.share}}]",
			class(group, "Class", "disk", "")+"spec: {capacity: 10Gi, share: 6Gi}\n")
		w.namespaces(t, "capacity-a", "capacity-b", "capacity-c")
		of := func(namespace, name, storage string) string {
			return strings.Replace(claimWith(group, name, "{storage: "+storage+", classSelector: {}}"), "default", namespace, 1)
		}
		w.binds(t, of("capacity-a", "first", "4Gi"), "Class/disk", "There is room.")
		w.binds(t, of("capacity-a", "second", "4Gi"), "", "The namespace may use 6Gi.")
		w.binds(t, of("capacity-a", "third", "2Gi"), "Class/disk", "There are 2Gi left for the namespace.")
		w.binds(t, of("capacity-b", "first", "6Gi"), "", "There are 4Gi left for all.")
		w.binds(t, of("capacity-b", "second", "3.5Gi"), "Class/disk", "There is room.")
		w.binds(t, of("capacity-c", "first", "1Gi"), "", "There is half of that left.")
		_, _, err := w.create(t, of("capacity-c", "malformed", "much"))
		refusedWith(t, err, http.StatusUnprocessableEntity, "spec.storage: Invalid value: the expression spec.classes.usage[storage].expression of claim kind")
	})

	t.Run("Quantities", func(t *testing.T) {
		const group = "quantities.capacity.test"
		w.registerCapacity(t, group, "{classes: {usage: [{name: memory, expression: claim.spec.memory}, {name: cpu, expression: claim.spec.cpu}]}}",
			"[{name: memory, total: {path: .spec.memory}}, {name: cpu, total: {path: .spec.cpu}}, {name: claims}]",
			class(group, "Class", "pool", `annotations: {classbind.io/capacity: "4"}, `)+"spec: {memory: 16Gi, cpu: 4}\n")
		of := func(name, memory, cpu string) string {
			return claimWith(group, name, "{memory: "+memory+", cpu: "+cpu+", classSelector: {}}")
		}
		w.binds(t, of("first", "2Gi", "3"), "Class/pool", "There is room.")
		w.binds(t, of("second", "2Gi", "2"), "", "There is memory, but CPU fills first.")
		w.binds(t, of("third", "12Gi", "0"), "Class/pool", "A claim that uses no CPU needs none.")
		w.binds(t, of("fourth", "1Gi", "1"), "Class/pool", "There is 1 CPU left, and 2Gi.")
		w.binds(t, of("fifth", "1Gi", "0"), "Class/pool", "There is 1Gi left.")
		w.binds(t, of("sixth", "0", "0"), "", "There are 4 claims.")
		if w.plane.Kubeconfig == "" {
			return
		}
		out, _, _ := w.classbind(t, "explain", "claim."+group+"/second", "--namespace=default", "--kubeconfig="+w.plane.Kubeconfig)
		assert.Contains(t, out, "full: 17179869184 of 17179869184 memory, and this claim uses 2147483648; 4 of 4 cpu, and this claim uses 2; 4 of 4 claims")
	})

	t.Run("Related", func(t *testing.T) {
		const group = "related.capacity.test"
		w.resources(t, "Plan plans."+group+" Namespaced")
		w.awaitCRDs(t, "plans."+group)
		plan := func(size string) {
			w.apply(t, "apiVersion: "+group+"/v1\nkind: Plan\nmetadata: {name: gold, namespace: default}\nspec: {size: "+size+"}\n")
		}
		plan("3")
		w.registerCapacity(t, group, "{whenUnmatched: BindLater, classes: {related: [{name: plan, resource: plans."+group+", nameExpression: claim.spec.plan}], "+
			"usage: [{name: size, expression: related.plan.spec.size}]}}", "[{name: size}]",
			class(group, "Class", "disk", `annotations: {classbind.io/capacity-size: "6"}, `))
		of := func(name string) string { return claimWith(group, name, "{plan: gold, classSelector: {}}") }
		w.binds(t, of("first"), "Class/disk", "There is room.")
		w.binds(t, of("second"), "Class/disk", "There is room for what the plan says.")
		third := w.binds(t, of("third"), "", "Two claims of the plan use all.")
		plan("2")
		w.awaitStored(t, third, "Class/disk", "We should count the claims again when their plan changes.")
	})

	t.Run("BindLater", func(t *testing.T) {
		const group = "late.capacity.test"
		w.registerCapacity(t, group, "{whenUnmatched: BindLater, reference: {path: .spec.classRef, explicit: Check}}", "[{name: claims}]",
			class(group, "Class", "only", `annotations: {classbind.io/capacity: "1"}, `))
		first := w.binds(t, claim(group, "first"), "Class/only", "We should let pass what we gave ourselves.")
		second := w.binds(t, claim(group, "second"), "", "The class is full.")
		named := claimWith(group, "named", "{classRef: {apiVersion: "+group+"/v1, kind: Class, name: only}}")
		w.awaitRefused(t, named, `it names the class "Class/only", which is full`, "We should check the room of a class that a claim names.")
		w.awaitWaiting(t, "claims."+group, 1)
		require.NoError(t, w.Delete(t.Context(), first))
		w.awaitStored(t, second, "Class/only", "A claim that waits should get the room that another leaves.")
	})

	t.Run("Stored", func(t *testing.T) {
		const group = "stored.capacity.test"
		notInPods(t, "It needs the kubeconfig of an admin.")
		w.resources(t, "Claim claims."+group+" Namespaced")
		for _, name := range []string{"a", "b", "c", "d"} {
			w.apply(t, claimWith(group, name, "{size: 2, classSelector: {}}"))
		}
		w.registerCapacity(t, group, "{classes: {usage: [{name: size, expression: claim.spec.size}]}}", "[{name: size}]",
			class(group, "Class", "disk", `annotations: {classbind.io/capacity-size: "5"}, `))
		for _, flag := range []string{"--dry-run", "--dry-run=server", "--dry-run=none"} {
			out, _, exit := w.classbind(t, "bind", "claims."+group, "-A", flag, "--kubeconfig="+w.plane.Kubeconfig)
			assert.Equal(t, 1, exit, out)
			assert.Contains(t, out, "2 bound, 2 without a class", "We should bind as many as there is room for.")
		}
		out, _, _ := w.classbind(t, "explain", "claim."+group+"/d", "--namespace=default", "--kubeconfig="+w.plane.Kubeconfig)
		assert.Contains(t, out, "full: 4 of 5 size, and this claim uses 2", "We should count the claims that are stored.")
	})
}

// TestCapacityOfReplicas has clients of several replicas fill classes: each replica counts a claim of another once it is stored.
func TestCapacityOfReplicas(t *testing.T) {
	long(t)
	t.Parallel()
	const group, n, holds, inFlight = "replicas.test", 10, 50, 16
	w := newWorld(t, controlplane.Options{})
	balancer := must(classbind.NewBalancer())(t)
	t.Cleanup(func() { _ = balancer.Close() })
	for range 3 {
		balancer.Add(strings.TrimPrefix(w.serve(t, "--webhook-url="+balancer.URL).URL, "https://"))
	}
	classes := ""
	for i := range n {
		classes += class(group, "Class", fmt.Sprint("class-", i), fmt.Sprintf("annotations: {classbind.io/capacity: %q}, ", fmt.Sprint(holds)))
	}
	w.registerCapacity(t, group, "{selector: {whenAbsent: Any}}", "[{name: claims}]", classes)
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
