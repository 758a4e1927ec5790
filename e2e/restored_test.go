package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestRestoredInAnotherOrder takes all registrations of one cluster into another, where the last comes first. Of those that
// are in each other's way, the same are served.
func TestRestoredInAnotherOrder(t *testing.T) {
	long(t)
	t.Parallel()
	const group = "restored.test"
	registrations := claimKind("claims."+group, "{selector: {whenAbsent: Any}}") +
		claimKind("again."+group, "{claims: {resource: claims."+group+"}, choice: {strategy: HighestWeight}, selector: {whenAbsent: Any}}") +
		claimKind("tickets."+group, "{reference: {path: .spec.className, form: Name}, choice: {strategy: Random}}") +
		claimKind("orders."+group, "{classes: {kinds: [{name: others."+group+"}]}, whenUnmatched: Deny}") +
		classKind("classes."+group, fmt.Sprintf("{claimKinds: [{name: claims.%[1]s}, {name: again.%[1]s}, {name: tickets.%[1]s}]}", group)) +
		classKind("others."+group, fmt.Sprintf("{claimKinds: [{name: claims.%[1]s}, {name: again.%[1]s}, {name: tickets.%[1]s}]}", group))
	classes := ""
	for i := range 4 {
		for _, kind := range []string{"Class", "Other"} {
			classes += class(group, kind, fmt.Sprintf("%s-%d", strings.ToLower(kind), i), fmt.Sprintf("annotations: {classbind.io/weight: '%d'}, labels: {tier: 't%d'}, ", i+1, i%2))
		}
	}
	start := func() *world {
		w := newWorld(t, controlplane.Options{})
		w.serve(t)
		w.resources(t, "Claim claims."+group+" Namespaced", "Ticket tickets."+group+" Namespaced", "Order orders."+group+" Namespaced",
			"Class classes."+group+" Cluster", "Other others."+group+" Cluster")
		w.apply(t, lateVendor(group)+classes)
		return w
	}
	answers := func(w *world) (all []string) {
		for _, kind := range []string{"again", "tickets", "orders"} {
			w.awaitCondition(t, &v1beta1.ClaimKind{}, kind+"."+group, v1beta1.ConditionReady, metav1.ConditionTrue, "")
		}
		w.awaitReason(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ReasonConflict)
		w.awaitClasses(t, "classes."+group, 4)
		w.awaitClasses(t, "others."+group, 4)
		for _, kind := range []string{"Claim", "Ticket", "Order"} {
			for i := range 20 {
				metadata := []string{fmt.Sprintf(", annotations: {classbind.io/class-selector: tier=t%d}", i/2%3), ""}[i%2]
				bound, warnings, err := w.create(t, fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: default, name: c%d%s}\nspec: {}\n", group, kind, i, metadata), client.DryRunAll)
				all = append(all, fmt.Sprint(kind, i, bound.Object["spec"], warnings, err))
			}
		}
		return all
	}

	w := start()
	w.apply(t, registrations)
	want := answers(w)
	assert.Contains(t, strings.Join(want, ""), "other-", "We should reach both kinds of class.")
	backup := w.registrations(t)
	require.Len(t, backup, 6)

	w = start()
	slices.Reverse(backup)
	for i := range backup {
		w.restore(t, &backup[i])
	}
	assert.Equal(t, want, answers(w), "We should serve the same claims in the same way.")
}

func (w *world) restore(t *testing.T, object *unstructured.Unstructured) {
	name := object.GetName()
	delete(object.Object, "status")
	delete(object.Object, "metadata")
	object.SetName(name)
	require.NoError(t, w.Create(t.Context(), object))
	created := object.GetCreationTimestamp()
	eventually(t, func(c *attempt) {
		probe, _, err := w.create(t, claimKind("probe.restored.test", "{}"), client.DryRunAll)
		require.NoError(c, err)
		require.True(c, created.Time.Before(probe.GetCreationTimestamp().Time))
	})
}
