package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/webhook/capacity"
)

func (w *world) registerCapacity(t *testing.T, group, spec, capacity, classes string) {
	w.serves(t, kinds(group, spec)+classKind("classes."+group, "{claimKinds: [{name: claims."+group+"}], capacity: "+capacity+"}")+classes)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ConditionClaimsCounted, metav1.ConditionTrue, "")
}

// TestCapacity has classes that hold only so much, as one replica counts it.
func TestCapacity(t *testing.T) {
	notInPods(t, "Each of several replicas counts for itself.")
	w := sharedWorld(t)
	t.Run("Soft", func(t *testing.T) {
		const group = "capacity.test"
		classes := ""
		for _, name := range []string{"gold", "silver", "bronze"} {
			classes += class(group, "Class", name, `annotations: {classbind.io/capacity: "10"}, `)
		}
		w.registerCapacity(t, group, "{}", "{}", classes)
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
		w.awaitCondition(t, &v1beta1.ClassKind{}, "classes."+group, v1beta1.ConditionCapacitiesValid, metav1.ConditionFalse, `classes with a malformed capacity: Class/gold; the first: `)
		w.apply(t, class(group, "Class", "gold", `annotations: {classbind.io/capacity: "11"}, `))
		w.awaitBound(t, claim(group, "probe"), "Class/gold", "A class that holds more should take more.")
	})

	t.Run("Usage", func(t *testing.T) {
		const group = "storage.capacity.test"
		w.registerCapacity(t, group, "{classes: {usage: claim.spec.storage}}", "{total: {path: .spec.capacity}, perNamespace: {expression: class.spec.share}}",
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
		refusedWith(t, err, http.StatusUnprocessableEntity, "spec.storage: Invalid value: the expression spec.classes.usage of claim kind")
	})

	t.Run("BindLater", func(t *testing.T) {
		const group = "late.capacity.test"
		w.registerCapacity(t, group, "{whenUnmatched: BindLater, reference: {path: .spec.classRef, explicit: Check}}", "{}",
			class(group, "Class", "only", `annotations: {classbind.io/capacity: "1"}, `))
		first := w.binds(t, claim(group, "first"), "Class/only", "We should let pass what we gave ourselves.")
		second := w.binds(t, claim(group, "second"), "", "The class is full.")
		named := claimWith(group, "named", "{classRef: {apiVersion: "+group+"/v1, kind: Class, name: only}}")
		w.awaitRefused(t, named, `it names the class "Class/only", which is full`, "We should check the room of a class that a claim names.")
		w.awaitWaiting(t, "claims."+group, 1)
		require.NoError(t, w.Delete(t.Context(), first))
		w.awaitStored(t, second, "Class/only", "A claim that waits should get the room that another leaves.")
	})
}

// TestCapacitySoft has clients of several replicas fill classes: each replica counts a claim of another once it is stored.
func TestCapacitySoft(t *testing.T) {
	long(t)
	t.Parallel()
	const group, n, holds, inFlight = "soft.test", 10, 50, 16
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
	w.registerCapacity(t, group, "{selector: {whenAbsent: Any}}", "{}", classes)
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

const hardWindow = 2 * time.Second

// hardWorld has classes of a kind whose capacity is enforced, with these annotations.
func hardWorld(t *testing.T, group, claims string, classes map[string]string, flags ...string) *world {
	w, _ := servedWorld(t, controlplane.Options{}, append(flags, "--in-flight-window="+hardWindow.String())...)
	manifest := kinds(group, claims) + classKind("classes."+group,
		"{claimKinds: [{name: claims."+group+"}], capacity: {enforcement: Hard, perNamespace: {annotation: per-namespace}}}")
	for name, annotations := range classes {
		manifest += class(group, "Class", name, "annotations: {"+annotations+"}, ")
	}
	w.install(t, manifest)
	for name := range classes {
		w.awaitLedger(t, group, name, func(col *attempt, l *v1beta1.Ledger) { assert.True(col, l.Spec.Open) })
	}
	return w
}

func (w *world) awaitLedger(t *testing.T, group, class string, check func(*attempt, *v1beta1.Ledger)) {
	eventually(t, func(col *attempt) {
		l := &v1beta1.Ledger{}
		require.NoError(col, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: capacity.NameOf("classes."+group, "", class)}, l))
		check(col, l)
	})
}

func used(amount int64) func(*attempt, *v1beta1.Ledger) {
	return func(col *attempt, l *v1beta1.Ledger) {
		assert.Equal(col, [2]int64{amount, 0}, [2]int64{l.Spec.Used, l.Spec.Reserved}, "%+v", l.Spec)
	}
}

// TestCapacityEnforced fills classes to the last place, by the draw, by name and by growth.
func TestCapacityEnforced(t *testing.T) {
	t.Parallel()
	const group = "hard.test"
	w := hardWorld(t, group, "{reference: {path: .spec.classRef}, selector: {whenAbsent: Any}, classes: {usage: 'has(claim.spec.size) ? claim.spec.size : 1'}}",
		map[string]string{"a": "classbind.io/capacity: '5'", "b": "classbind.io/capacity: '5', per-namespace: '3'"})
	bound := map[any]int{}
	for i := range 13 {
		c := naming(group, "default", fmt.Sprint("claim-", i), "")
		require.NoError(t, w.Create(t.Context(), c))
		bound[at(c, "spec", "classRef", "name")]++
	}
	assert.Equal(t, map[any]int{"a": 5, "b": 3, nil: 5}, bound, "We should fill each class, as far as the namespace may.")
	w.awaitLedger(t, group, "a", used(5))
	w.awaitLedger(t, group, "b", used(3))
	const a, b = "apiVersion=hard.test/v1 kind=Class name=a", "apiVersion=hard.test/v1 kind=Class name=b"
	err := w.Create(t.Context(), naming(group, "default", "named", a))
	require.True(t, apierrors.IsForbidden(err) || apierrors.IsTooManyRequests(err), "%v", err)
	require.ErrorContains(t, err, "full: 5 of 5")
	err = w.Create(t.Context(), naming(group, "default", "named", b))
	require.ErrorContains(t, err, `full for the namespace "default": 3 of 3`)
	err = w.Create(t.Context(), naming(group, "default", "named", "apiVersion=hard.test/v1 kind=Class name=none"))
	require.ErrorContains(t, err, "not there")

	w.namespaces(t, "other")
	inOther := naming(group, "other", "named", b)
	require.NoError(t, w.Create(t.Context(), inOther.DeepCopy(), client.DryRunAll), "We should reserve nothing for a dry run.")
	require.NoError(t, w.Create(t.Context(), inOther))
	w.awaitLedger(t, group, "b", used(4))
	grow := func(size int64) error {
		require.NoError(t, unstructured.SetNestedField(inOther.Object, size, "spec", "size"))
		return w.Update(t.Context(), inOther)
	}
	require.NoError(t, grow(2))
	w.awaitLedger(t, group, "b", used(5))
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(inOther), inOther))
	err = grow(3)
	require.ErrorContains(t, err, "full: 5 of 5", "We should refuse growth beyond the capacity.")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(inOther), inOther))
	require.NoError(t, grow(1), "We should let a claim shrink.")
	w.awaitLedger(t, group, "b", used(4))

	require.NoError(t, w.Delete(t.Context(), naming(group, "other", "named", "")))
	w.awaitLedger(t, group, "b", used(3))

	// A ledger that is edited, or deleted, is counted again.
	l := &v1beta1.Ledger{}
	key := client.ObjectKey{Namespace: classbind.Namespace, Name: capacity.NameOf("classes."+group, "", "a")}
	for name, spoil := range map[string]func() error{
		"edited":  func() error { l.Spec.Used = 0; return w.Update(t.Context(), l) },
		"deleted": func() error { return w.Delete(t.Context(), l) },
	} {
		require.NoError(t, w.Get(t.Context(), key, l))
		require.NoError(t, spoil())
		err = w.Create(t.Context(), naming(group, "default", "spoilt-"+name, a))
		require.Error(t, err, "We should give nothing while it is not counted.")
		w.awaitLedger(t, group, "a", func(col *attempt, l *v1beta1.Ledger) { assert.True(col, l.Spec.Open); used(5)(col, l) })
		require.ErrorContains(t, w.Create(t.Context(), naming(group, "default", "after-"+name, a)), "full: 5 of 5")
		w.awaitCondition(t, &v1beta1.ClassKind{}, "classes."+group, v1beta1.ConditionCapacityEnforced, metav1.ConditionTrue, "full are Class/a")
	}
}

// TestCapacityRate measures what a reservation costs, and holds the size of a ledger. make rate runs it alone.
func TestCapacityRate(t *testing.T) {
	const group, n = "rate.test", 10
	classes := map[string]string{}
	for i := range n {
		classes[fmt.Sprint("class-", i)] = "classbind.io/capacity: 1M"
	}
	w := hardWorld(t, group, "{reference: {path: .spec.classRef}, selector: {whenAbsent: Any}}", classes)
	w.register(t, "free.test", "{reference: {path: .spec.classRef}, selector: {whenAbsent: Any}}", class("free.test", "Class", "free", ""))
	alone := func(group string) (took []time.Duration) {
		for i := range 200 {
			began := time.Now()
			require.NoError(t, w.Create(t.Context(), naming(group, "default", fmt.Sprint("alone-", i), "")))
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took
	}
	took, without := alone(group), alone("free.test")
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
