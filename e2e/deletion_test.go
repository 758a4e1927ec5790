package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestDeletion has two replicas, which the API server asks one after the other. Claims are bound later,
// and counted for a strategy; who deletes their class is told, whichever replica is asked.
func TestDeletion(t *testing.T) {
	long(t)
	t.Parallel()
	const group, claims, orders, plain, classes = "deletion.test", "claims.deletion.test", "orders.deletion.test", "plains.deletion.test", "classes.deletion.test"
	w := newWorld(t, controlplane.Options{ConnectionPerWebhookCall: true})
	balancer, replicas := w.serveBehind(t, 2)
	w.resources(t, "Claim "+claims+" Namespaced", "Order "+orders+" Namespaced", "Plain "+plain+" Namespaced", "Class "+classes+" Cluster", "Other others.deletion.test Cluster")
	w.apply(t, lateVendor(group)+claimKind(claims, "{whenUnmatched: BindLater}")+claimKind(orders, "{choice: {strategy: LeastClaims}}")+claimKind(plain, "{}")+
		classKind(classes, "{claimKinds: [{name: "+claims+"}, {name: "+orders+"}, {name: "+plain+"}]}")+classKind("others.deletion.test", "{claimKinds: [{name: "+plain+"}]}"))
	for _, name := range []string{"gold", "silver", "bronze"} {
		w.apply(t, tierClass(group, name))
	}
	w.apply(t, class(group, "Other", "gold", "labels: {tier: none}, "))
	for _, kind := range []string{claims, orders, plain} {
		w.awaitClaims(t, kind)
	}
	w.awaitClasses(t, classes, 3)
	bind := func(kind, name, tier string) {
		w.binds(t, fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: default, name: %s}\nspec: {classSelector: {matchLabels: {tier: %s}}}\n", group, kind, name, tier), "Class/"+tier, "")
	}
	for _, name := range []string{"a", "b", "c"} {
		bind("Claim", name, "gold")
	}
	bind("Order", "a", "gold")
	bind("Plain", "a", "silver")

	// remove a class, or all that have a label, and return the warnings.
	remove := func(t require.TestingT, kind, name string, o ...client.DeleteOption) []string {
		var text []string
		require.NoError(t, w.Delete(context.WithValue(context.Background(), warnings{}, &text), object(group, kind, name), o...))
		return text
	}
	asked := func(r *replica) int {
		n := must(r.Answered(t.Context(), v1beta1.DeletionPath))(t)
		return n
	}
	const theirs = `claims still refer to the class "Class/gold": 3 claims of claims.deletion.test, 1 claim of orders.deletion.test; create the class again, or delete these claims and create them again` +
		`; to keep new claims from a class before you delete it: kubectl annotate classes.deletion.test gold classbind.io/cordoned=true`
	for _, r := range replicas {
		for _, other := range replicas {
			balancer.Remove(strings.TrimPrefix(other.URL, "https://"))
		}
		balancer.Add(strings.TrimPrefix(r.URL, "https://"))
		balancer.Cut()
		before := asked(r)
		eventually(t, func(c *attempt) {
			require.Equal(c, []string{theirs}, remove(c, "Class", "gold", client.DryRunAll))
		}, "We should be warned by each replica.")
		assert.Greater(t, asked(r), before)
	}

	t.Run("Collection", func(t *testing.T) {
		var text []string
		require.NoError(t, w.DeleteAllOf(context.WithValue(t.Context(), warnings{}, &text), object(group, "Class", ""), client.DryRunAll))
		assert.Equal(t, []string{theirs}, text, "We should be warned of the class that has claims, and of no other.")
	})

	t.Run("Counted", func(t *testing.T) {
		eventually(t, func(c *attempt) {
			assert.Equal(c, "4", w.kubectl(t, "get", "classkind", classes, "-o", "jsonpath={.status.claims}"))
			assert.Equal(c, "3", w.kubectl(t, "get", "claimkind", claims, "-o", "jsonpath={.status.boundClaims}"))
		}, "We should have the number in the status.")
		assert.Empty(t, w.kubectl(t, "get", "classkind", "others.deletion.test", "-o", "jsonpath={.status.claims}"), "We should have no number where no claims are watched.")
		header, row, _ := strings.Cut(w.kubectl(t, "get", "classkind", classes), "\n")
		column := strings.Index(header, "CLAIMS")
		require.Positive(t, column, header)
		assert.Equal(t, "4", strings.Fields(row[column:])[0], "We should have the number in a column.")
	})

	t.Run("Deleted", func(t *testing.T) {
		before := asked(replicas[0]) + asked(replicas[1])
		assert.Empty(t, remove(t, "Class", "silver"), "We should not be warned of a class whose claims nobody watches.")
		assert.Empty(t, remove(t, "Other", "gold"))
		assert.Equal(t, before+1, asked(replicas[0])+asked(replicas[1]), "We should not be asked where no claims are watched.")
		_, stderr, err := w.Kubectl(t.Context(), nil, "delete", "class.deletion.test", "gold")
		require.NoError(t, err)
		assert.Contains(t, stderr, "Warning: "+theirs)
		assert.True(t, apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKey{Name: "gold"}, object(group, "Class", "gold"))), "We should see the class gone.")
		eventually(t, func(c *attempt) {
			assert.Equal(c, "0", w.kubectl(t, "get", "classkind", classes, "-o", "jsonpath={.status.claims}"))
			assert.Equal(c, "3", w.kubectl(t, "get", "claimkind", claims, "-o", "jsonpath={.status.boundClaims}"))
		}, "We should count no claims of a class that is gone, which are bound all the same.")
		w.apply(t, class(group, "Class", "gold", ""))
		eventually(t, func(c *attempt) {
			assert.Equal(c, "4", w.kubectl(t, "get", "classkind", classes, "-o", "jsonpath={.status.claims}"))
		}, "We should count them again with a class of its name.")
	})

	t.Run("NoAnswer", func(t *testing.T) {
		require.NoError(t, balancer.Close())
		balancer.Cut()
		assert.Empty(t, remove(t, "Class", "bronze"), "We should not hold up a deletion when no replica runs.")
	})
}

// TestDeletionDenied has a thousand claims, or a hundred with -short, which nobody watches until a class kind has onDelete Deny.
func TestDeletionDenied(t *testing.T) {
	t.Parallel()
	const group, claims, classes, locals = "ondelete.test", "claims.ondelete.test", "classes.ondelete.test", "locals.ondelete.test"
	n := 1000
	if testing.Short() {
		n = 100
	}
	w := sharedWorld(t)
	w.resources(t, "Local "+locals+" Namespaced")
	w.register(t, group, "{}", tierClass(group, "gold"))
	w.createMany(t, group, n)
	set := func(kind, name, spec string) {
		require.NoError(t, w.patch(t, kind+".classbind.io", name, `{"spec":`+spec+`}`))
	}
	remove := func(c client.Client, kind, namespace string, o ...client.DeleteOption) (text []string, err error) {
		class := object(group, kind, "gold")
		class.SetNamespace(namespace)
		err = c.Delete(context.WithValue(context.Background(), warnings{}, &text), class, o...)
		return text, err
	}
	await := func(reason string, check func(*attempt, []string, error)) {
		eventually(t, func(c *attempt) {
			text, err := remove(w, "Class", "", client.DryRunAll)
			check(c, text, err)
		}, reason)
	}
	refer := fmt.Sprintf(`claims still refer to the class "Class/gold": %d claims of claims.ondelete.test; `, n)
	const way = "; to keep new claims from a class before you delete it: kubectl annotate classes.ondelete.test gold classbind.io/cordoned=true"
	const remedy = `delete these claims first, or set spec.onDelete of the ClassKind "classes.ondelete.test" to Warn`
	denied := func(c *attempt, _ []string, err error) {
		require.True(c, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(c, err, refer+remedy+way)
	}
	deleted := func(c *attempt, text []string, err error) {
		require.NoError(c, err)
		require.Empty(c, text)
	}
	text := must(remove(w, "Class", "", client.DryRunAll))(t)
	require.Empty(t, text, "We should not be warned of claims that nobody watches.")

	set("classkinds", classes, `{"onDelete":"Deny"}`)
	await("We should be refused once the claims are counted.", denied)
	w.awaitKind(t, claims, "We should say that the claims are counted.", func(c *attempt, k *v1beta1.ClaimKind) {
		require.True(c, meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionClaimsCounted), "%v", k.Status.Conditions)
		require.EqualValues(c, n, *k.Status.BoundClaims)
	})
	set("classkinds", classes, `{"onDelete":"Allow"}`)
	await("We should neither be refused nor warned.", deleted)
	w.awaitKind(t, claims, "We should watch the claims no more.", func(c *attempt, k *v1beta1.ClaimKind) {
		require.Nil(c, k.Status.BoundClaims)
		require.Nil(c, meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionClaimsCounted))
	})
	set("claimkinds", claims, `{"choice":{"strategy":"LeastClaims"}}`)
	set("classkinds", classes, `{"onDelete":"Warn"}`)
	await("We should be warned.", func(c *attempt, text []string, err error) {
		require.NoError(c, err)
		require.Equal(c, []string{refer + "create the class again, or delete these claims and create them again" + way}, text)
	})
	set("claimkinds", claims, `{"choice":{"strategy":"Random"}}`)
	set("classkinds", classes, `{"onDelete":"Deny"}`)
	await("We should be refused again.", denied)
	_, err := remove(w, "Class", "")
	require.True(t, apierrors.IsForbidden(err), "We should be refused for good: %v", err)
	concurrently(t, n, func(i int) error { // One request for all may time out.
		return w.Delete(t.Context(), unopinionated(group, fmt.Sprint("claim-", i)))
	})
	await("We should be let go once the claims are gone.", deleted)
	text = must(remove(w, "Class", ""))(t)
	require.Empty(t, text)

	t.Run("Namespace", func(t *testing.T) {
		w.kubectl(t, "create", "namespace", "doomed")
		w.apply(t, classKind(locals, "{onDelete: Deny, claimKinds: [{name: "+claims+"}]}")+class(group, "Local", "gold", "namespace: doomed, labels: {tier: gold}, "))
		w.awaitClasses(t, locals, 1)
		w.awaitBound(t, claimIn(group, "doomed", "a"), "Local/gold", "We should be offered the class.")
		w.binds(t, claimIn(group, "doomed", "a"), "Local/gold", "")
		eventually(t, func(c *attempt) {
			_, err := remove(w, "Local", "doomed", client.DryRunAll)
			require.True(c, apierrors.IsForbidden(err), "%v", err)
		}, "We should be refused.")
		config := rest.CopyConfig(w.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:namespace-controller", Groups: []string{"system:authenticated"}}
		controller := must(newClient(config))(t)
		text := must(remove(controller, "Local", "doomed"))(t, "We should not keep a namespace from going.")
		require.Empty(t, text)
	})
}
