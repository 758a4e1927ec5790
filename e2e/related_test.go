package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
)

// planned is a ClaimKind whose claims get a class of the tier of the plan that they name.
func planned(kind, plans string) string {
	return claimKind(kind, fmt.Sprintf(`
  whenUnmatched: Admit
  classes:
    related: [{name: plan, resource: %s, nameExpression: claim.spec.planId}]
    fits:
    - {name: SameTier, expression: has(related.plan) && class.metadata.labels.tier == related.plan.spec.tier, message: of another tier}`, plans))
}

// tierClass is a class with its tier in a label.
func tierClass(group, tier string) string {
	return class(group, "Class", tier, fmt.Sprintf("labels: {tier: %s}, ", tier))
}

func plan(group, name, tier string) string {
	return fmt.Sprintf("---\napiVersion: %s/v1\nkind: Plan\nmetadata: {namespace: default, name: %s}\nspec: {tier: %s}\n", group, name, tier)
}

// namedClaim has further fields in its spec.
func namedClaim(group, name, spec string) string {
	return strings.Replace(claim(group, name), "spec: {", "spec: {"+spec+", ", 1)
}

func TestRelated(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)

	t.Run("PlanAndClaimInOneFile", func(t *testing.T) {
		t.Parallel()
		const group, kind = "planned.test", "claims.planned.test"
		w.resources(t, "Claim "+kind+" Namespaced", "Class classes.planned.test Cluster", "Plan plans.planned.test Namespaced")
		w.apply(t, vendor(group)+tierClass(group, "gold")+tierClass(group, "iron")+planned(kind, "plans.planned.test")+
			classKind("classes.planned.test", "{claimKinds: [{name: "+kind+"}]}")+plan(group, "small", "iron"))
		w.awaitClasses(t, "classes.planned.test", 2)
		w.awaitClaims(t, kind)
		w.awaitBound(t, namedClaim(group, "first", "planId: small"), "Class/iron", "We should bind by the plan that a claim names.")
		for i := range 10 {
			name := fmt.Sprint("plan-", i)
			// Without waiting for each other, as kubectl sends the objects of a file.
			w.created(t, plan(group, name, "gold"))
			w.binds(t, namedClaim(group, name, "planId: "+name), "Class/gold", "We should read a plan that is new.")
		}
		got, warnings := w.warned(t, namedClaim(group, "none", "planId: absent"))
		assert.Empty(t, classOf(got))
		assert.Contains(t, fmt.Sprint(warnings), "of another tier")

		w.apply(t, plan(group, "small", "gold"))
		w.awaitBound(t, namedClaim(group, "second", "planId: small"), "Class/gold", "We should go by the plan as it is now.")
		w.kubectl(t, "delete", "plans.planned.test", "small")
		w.awaitBound(t, namedClaim(group, "third", "planId: small"), "", "We should notice that a plan is gone.")
		_, _, err := w.create(t, claim(group, "fourth"))
		require.True(t, apierrors.IsInvalid(err), "We should refuse a claim on which an expression fails: %v", err)
		require.ErrorContains(t, err, "no such key: planId")
	})

	t.Run("Forbidden", func(t *testing.T) {
		t.Parallel()
		const group, kind, plans = "granted.test", "claims.granted.test", "plans.secretive.test"
		w.resources(t, "Claim "+kind+" Namespaced", "Class classes.granted.test Cluster", "Plan "+plans+" Namespaced")
		w.apply(t, vendor(group)+tierClass(group, "gold")+planned(kind, plans)+
			classKind("classes.granted.test", "{claimKinds: [{name: "+kind+"}]}")+plan("secretive.test", "small", "gold"))
		w.awaitClasses(t, "classes.granted.test", 1)
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionRelatedKnown, metav1.ConditionFalse,
			"label a ClusterRole that allows list and watch with classbind.io/aggregate-to-classbind=true")
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionFalse, `"plans.secretive.test"`)
		w.awaitBound(t, namedClaim(group, "first", "planId: small"), "", "We should bind no claim by a plan that we may not read, nor stop any.")
		w.apply(t, vendor("secretive.test"))
		w.awaitBound(t, namedClaim(group, "first", "planId: small"), "Class/gold", "We should notice that we may read it.")
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionRelatedKnown, metav1.ConditionTrue, "")
	})

	t.Run("InstalledLater", func(t *testing.T) {
		t.Parallel()
		const group, kind, plans = "later-plan.test", "claims.later-plan.test", "plans.later-plan.test"
		w.resources(t, "Claim "+kind+" Namespaced", "Class classes.later-plan.test Cluster")
		w.apply(t, vendor(group)+tierClass(group, "gold")+planned(kind, plans)+classKind("classes.later-plan.test", "{claimKinds: [{name: "+kind+"}]}"))
		w.awaitClasses(t, "classes.later-plan.test", 1)
		w.awaitBound(t, namedClaim(group, "first", "planId: small"), "", "We should take what is not installed for absent.")
		w.resources(t, "Plan "+plans+" Namespaced")
		w.apply(t, plan(group, "small", "gold"))
		w.awaitBound(t, namedClaim(group, "first", "planId: small"), "Class/gold", "We should notice that it is installed.")
		w.kubectl(t, "delete", "crd", plans)
		w.awaitBound(t, namedClaim(group, "first", "planId: small"), "", "We should notice that it is gone.")
	})

	t.Run("Namespace", func(t *testing.T) {
		t.Parallel()
		const group = "tenant-labels.test"
		in := func(namespace, name string) string {
			return strings.Replace(claim(group, name), "namespace: default", "namespace: "+namespace, 1)
		}
		w.apply(t, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: tenant-a, labels: {tenant: gold}}\n")
		w.register(t, group, "{classes: {fits: [{name: Tenant, expression: class.metadata.labels.tier == namespace.metadata.labels.tenant}]}}",
			tierClass(group, "gold"), tierClass(group, "iron"))
		w.awaitBound(t, in("tenant-a", "one"), "Class/gold", "We should see the labels of the namespace.")
		w.kubectl(t, "label", "namespace", "tenant-a", "--overwrite", "tenant=iron")
		w.awaitBound(t, in("tenant-a", "one"), "Class/iron", "We should see the labels as they are now.")
		w.apply(t, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: tenant-b, labels: {tenant: gold}}\n")
		w.binds(t, in("tenant-b", "one"), "Class/gold", "We should read a namespace that is new.")
	})

	// What is looked at in classes and claims changes with the registration of the other.
	t.Run("Linked", func(t *testing.T) {
		t.Parallel()
		const group, kind, classes = "linked.test", "claims.linked.test", "classes.linked.test"
		w.resources(t, "Claim "+kind+" Namespaced", "Class "+classes+" Cluster")
		w.apply(t, vendor(group)+claimKind(kind, "{}")+classKind(classes, "{claimKinds: [{name: "+kind+"}]}"))
		for name, size := range map[string]int64{"small": 1, "large": 9} {
			c := object(group, "Class", name)
			c.Object["spec"] = map[string]any{"size": size, "text": strings.Repeat("x", 10_000)}
			require.NoError(t, w.Create(t.Context(), c))
		}
		w.awaitClasses(t, classes, 2)
		w.awaitClaims(t, kind)
		w.apply(t, claimKind(kind, "{classes: {fits: [{name: Room, expression: class.spec.size > claim.spec.size}]}}"))
		w.awaitBound(t, namedClaim(group, "a", "size: 5"), "Class/large", "We should hold what a claim kind looks at in classes.")
		w.apply(t, claimKind(kind, "{classes: {fits: []}}")+classKind(classes, "{claimKinds: [{name: "+kind+"}], fits: [{name: Room, expression: class.spec.size < claim.spec.most}]}"))
		w.awaitBound(t, namedClaim(group, "b", "most: 5"), "Class/small", "We should read what a class kind looks at in claims.")
		w.apply(t, classKind(classes, "{claimKinds: [{name: "+kind+"}]}"))
		w.apply(t, "---\napiVersion: linked.test/v1\nkind: Class\nmetadata: {name: small, annotations: {classbind.io/cordoned: \"true\"}}\n")
		w.awaitBound(t, claim(group, "d"), "Class/large", "We should go on when it is mended.")
	})
}
