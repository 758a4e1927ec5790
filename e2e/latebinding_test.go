package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/load"
)

// TestImmutableClaims has claims wait whose schema refuses a reference that is added later: by COSI's own rule, and by one in other words.
func TestImmutableClaims(t *testing.T) {
	w := sharedWorld(t)
	for name, rule := range map[string]string{
		"cosi":  "has(oldSelf.className) == has(self.className)",
		"other": "!has(self.className) || has(oldSelf.className)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := name + ".immutable.test"
			kind, spec := "claims."+group, "          spec:\n            type: object\n"
			w.resources(t, "Class classes."+group+" Cluster")
			w.apply(t, strings.Replace(fmt.Sprintf(schemaOfClaims, group, "className: {type: string}"), spec,
				spec+fmt.Sprintf("            x-kubernetes-validations: [{rule: %q, message: className cannot be added}]\n", rule), 1))
			w.awaitCRDs(t, kind)
			w.apply(t, lateVendor(group)+serving("classes."+group, kind)+
				claimKind(kind, "{whenUnmatched: BindLater, reference: {path: .spec.className, form: Name}}"))
			w.awaitClaims(t, kind)
			wanting := func(name, tier string) string {
				return claimWith(group, name, fmt.Sprintf("{classSelector: {matchLabels: {tier: %s}}}", tier))
			}
			const promise, cause = "it will be bound when a class matches", "className cannot be added"
			_, warnings := w.warned(t, wanting("waits", "gold"))
			if name == "cosi" {
				assert.Contains(t, fmt.Sprint(warnings), "it cannot be bound later, because the schema refuses that (.spec: "+cause+"): create it again")
				w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionLateBinding, metav1.ConditionFalse, cause)
			}
			w.apply(t, tierClass(group, "gold"))
			w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionLateBinding, metav1.ConditionFalse, cause)
			eventually(t, func(c *attempt) {
				events := &eventsv1.EventList{}
				require.NoError(c, w.List(t.Context(), events, client.InNamespace("default")))
				require.True(c, slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
					return e.Regarding.APIVersion == group+"/v1" && e.Reason == v1beta1.EventReferenceRefused && strings.Contains(e.Note, cause)
				}))
			}, "We should show the author why the claim stays without a class.")
			eventually(t, func(c *attempt) {
				_, warnings, err := w.create(t, wanting("later", "silver"), client.DryRunAll)
				require.NoError(c, err)
				require.NotContains(c, fmt.Sprint(warnings), promise)
			}, "We should promise no author what was just refused.")
			created, _ := w.warned(t, wanting("new", "gold"))
			class, _, _ := unstructured.NestedString(created.Object, "spec", "className")
			assert.Equal(t, "gold", class, "We should bind claims that are created now.")
		})
	}
}

func (w *world) awaitWaiting(t *testing.T, claimKind string, n int) {
	k := &v1beta1.ClaimKind{}
	require.EventuallyWithT(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: claimKind}, k))
		require.NotNil(c, k.Status.WaitingClaims, "%v", k.Status.Conditions)
		require.EqualValues(c, n, *k.Status.WaitingClaims)
	}, 5*patience, 50*time.Millisecond)
	assert.True(t, meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionLateBinding), "%v", k.Status.Conditions)
}

// boundOnce checks that each claim of a group was written twice: when it was created, and when it was bound.
func (w *world) boundOnce(t *testing.T, group string, n int) {
	claims := w.claimsOf(t, group)
	assert.Len(t, claims, n)
	unbound, rewritten := 0, 0
	for i := range claims {
		if classOf(&claims[i]) == "" {
			unbound++
		}
		if claims[i].GetGeneration() != 2 {
			rewritten++
		}
	}
	assert.Zero(t, unbound, "We should bind every claim.")
	assert.Zero(t, rewritten, "We should write no claim twice.")
}

// TestLateBinding has two hundred claims wait for one class, while others are created.
func TestLateBinding(t *testing.T) {
	const group, kind, claims = "late.test", "claims.late.test", 200
	notInPods(t, "Claims are bound at a lower rate there.")
	w := sharedWorld(t)
	w.register(t, group, "{whenUnmatched: BindLater}", class(group, "Class", "ready", "labels: {tier: ready}, "))
	w.namespaces(t, "late-load")

	_, warnings := w.warned(t, claimWith(group, "warned", "{classSelector: {matchLabels: {tier: gold}}}"))
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "it will be bound when a class matches")
	w.createMany(t, group, claims-1)
	w.awaitWaiting(t, kind, claims)
	// notified waits for so many events.
	notified := func(n int, reason string, is func(e eventsv1.Event) bool) {
		events := &eventsv1.EventList{}
		assert.EventuallyWithT(t, func(c *attempt) {
			require.NoError(c, w.List(t.Context(), events, client.InNamespace("default")))
			require.Len(c, slices.DeleteFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.APIVersion != group+"/v1" || !is(e) }), n)
		}, 2*patience, 200*time.Millisecond, reason)
	}
	notified(1, "We should say that a claim waits, and for what.", func(e eventsv1.Event) bool {
		return e.Reason == v1beta1.EventNoMatchingClass && e.Regarding.Name == "warned" && strings.Contains(e.Note, "it will be bound when a class matches")
	})

	others := load.Start(t.Context(), load.Options{
		Client: w.Client, Kinds: []schema.GroupVersionKind{{Group: group, Version: "v1", Kind: "Claim"}}, Namespace: "late-load", PerSecond: 20,
		Spec: map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"tier": "ready"}}},
	})
	begin := time.Now()
	w.apply(t, class(group, "Class", "gold", "labels: {tier: gold}, "))
	w.awaitWaiting(t, kind, 0)
	took := time.Since(begin)
	report := must(others.Stop(t.Context()))(t)
	t.Logf("%d claims bound in %s, %.0f/s; meanwhile: %s", claims, took, float64(claims)/took.Seconds(), report)
	assert.Zero(t, report.Failures+report.Unbound+report.Unlike, "We should go on admitting claims.")
	w.boundOnce(t, group, claims)
	notified(claims, "We should say to which class each was bound.", func(e eventsv1.Event) bool { return e.Reason == v1beta1.EventBoundToClass })
}

// TestLateBindingLeaderKilled kills one leader after another while they bind, and others edit the claims.
func TestLateBindingLeaderKilled(t *testing.T) {
	long(t)
	const claims, edits, kills, group, kind = 4000, 20_000, 7, "killed.test", "claims.killed.test"
	w, leader := servedWorld(t, controlplane.Options{}, "--late-binding-rate=100")
	w.register(t, group, "{whenUnmatched: BindLater}")
	w.createMany(t, group, claims)
	w.awaitWaiting(t, kind, claims)
	var editing errgroup.Group
	editing.SetLimit(5)
	editing.Go(func() error {
		for i := range edits {
			editing.Go(func() error {
				o := object(group, "Claim", fmt.Sprint("claim-", i%claims))
				o.SetNamespace("default")
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"edit":"%d"}}}`, i)
				return w.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)))
			})
		}
		return nil
	})
	w.apply(t, class(group, "Class", "one", "labels: {tier: gold}, ")+class(group, "Class", "two", "labels: {tier: gold}, "))
	for killed, bound := 0, int32(0); killed < kills; killed++ {
		next := w.serve(t, "--late-binding-rate=100") // Since the other leads, this one does not.
		w.awaitKind(t, kind, "", func(c *attempt, k *v1beta1.ClaimKind) {
			require.Greater(c, *k.Status.BoundClaims, bound)
			bound = *k.Status.BoundClaims
		})
		leader.Kill()
		leader = next
	}
	require.NoError(t, editing.Wait())
	w.awaitWaiting(t, kind, 0)
	w.boundOnce(t, group, claims)
}
