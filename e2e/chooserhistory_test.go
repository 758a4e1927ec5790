package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/load"
)

// TestChooserHistory has 5,000 claims of four tenants ask a chooser that answers at random. Whatever it answers, no claim gets a class that
// its namespace may not use, that is full, cordoned, or does not fit.
func TestChooserHistory(t *testing.T) {
	long(t)
	const group, tenants, classes, claims, holds = "history.chooser.test", 4, 10, 5000, 700
	w, r := servedWorld(t, controlplane.Options{})
	c := w.chooser(t)
	may := func(tenant, class int) bool { return (tenant+class)%3 != 0 }
	offered, roles, subjects := "", followsRoles, map[int]string{}
	for i := range classes {
		metadata := fmt.Sprintf("labels: {number: %q}, annotations: {classbind.io/capacity: %q, classbind.io/cordoned: %q}, ",
			fmt.Sprint(i), fmt.Sprint(holds), fmt.Sprint(i >= 8))
		offered += class(group, "Class", fmt.Sprint("class-", i), metadata) +
			fmt.Sprintf("spec: {instanceType: m5.large, cpus: 2, most: %d}\n", 1+i%4)
		for tenant := range tenants {
			if may(tenant, i) {
				subjects[i] += fmt.Sprintf("- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:serviceaccounts:tenant-%d'}\n", tenant)
			}
		}
		roles += fmt.Sprintf("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: 'history:%[1]d'}\n"+
			"rules: [{apiGroups: [%[2]s], resources: [classes], resourceNames: [class-%[1]d], verbs: [use]}]\n"+
			"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: 'history:%[1]d'}\n"+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'history:%[1]d'}\nsubjects:\n%[3]s", i, group, subjects[i])
	}
	w.apply(t, roles)
	c.start(t)
	w.serves(t, kinds(group, "{selector: {whenAbsent: Any}, "+c.external("")+", classes: {use: {subject: Namespace}}}")+
		classKind("classes."+group, "{claimKinds: [{name: claims."+group+"}], capacity: [{name: claims}], "+
			"fits: [{name: Size, expression: claim.spec.cpus <= class.spec.most}]}")+offered)
	for _, condition := range []string{v1beta1.ConditionClaimsCounted, v1beta1.ConditionUseEnforced, v1beta1.ConditionChooserReady} {
		w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+group, condition, metav1.ConditionTrue, "")
	}
	require.NoError(t, c.Behave("Random", "Good"))
	for tenant := range tenants {
		w.namespaces(t, fmt.Sprint("tenant-", tenant))
	}

	create := func(from, to int) {
		concurrently(t, to-from, func(n int) error {
			i := from + n
			claim := object(group, "Claim", fmt.Sprint("claim-", i))
			claim.SetNamespace(fmt.Sprint("tenant-", i%tenants))
			claim.Object["spec"] = map[string]any{"cpus": int64(1 + i/tenants%4)}
			return w.Create(t.Context(), claim)
		})
	}
	create(0, claims/2)
	require.NoError(t, w.annotate(t, "classes."+group, "class-1", v1beta1.CordonedAnnotation+"=true"))
	probe := claimWith(group, "probe", "{cpus: 1, classSelector: {matchLabels: {number: '1'}}}")
	w.awaitBound(t, strings.Replace(probe, "default", "tenant-0", 1), "", "We should see that the class is cordoned.")
	create(claims/2, claims)

	used, bound := map[int]int{}, 0
	for tenant := range tenants {
		for _, claim := range w.claimsIn(t, group, fmt.Sprint("tenant-", tenant)) {
			number, i := -1, 0
			if classOf(&claim) == "" {
				continue
			}
			must(fmt.Sscanf(classOf(&claim), "Class/class-%d", &number))(t)
			must(fmt.Sscanf(claim.GetName(), "claim-%d", &i))(t)
			bound++
			used[number]++
			assert.True(t, may(tenant, number), "%s: tenant %d may not use class %d.", claim.GetName(), tenant, number)
			assert.LessOrEqual(t, 1+i/tenants%4, 1+number%4, "%s does not fit class %d.", claim.GetName(), number)
			assert.Less(t, number, 8, "%s should have no class that was cordoned all the time.", claim.GetName())
			assert.False(t, number == 1 && i >= claims/2, "%s should not have a class that was cordoned before.", claim.GetName())
		}
	}
	for number, n := range used {
		assert.LessOrEqual(t, n, holds, "Class %d holds no more.", number)
	}
	metrics, outcomes := must(r.Metrics(t.Context()))(t), map[string]int{}
	for _, outcome := range []string{"Order", "Cached", "NoClass", "NoOpinion", "Connection", "Invalid"} {
		outcomes[outcome] = must(sumOf(metrics, "classbind_chooser_answers_total", map[string]string{"outcome": outcome}))(t)
		assert.Positive(t, outcomes[outcome], outcome)
	}
	t.Logf("%d claims, %d with a class: %v; the chooser was asked %d times: %v", claims, bound, used, c.count(), outcomes)
	assert.Greater(t, bound, claims/2)
}

// TestChooserOfOthers has a namespace whose claims make the chooser hang. The claims of another still get ranked answers.
func TestChooserOfOthers(t *testing.T) {
	notInPods(t, "Pods do not reach the chooser, which runs in this process.")
	const group = "others.chooser.test"
	w := sharedWorld(t)
	c := w.chooser(t)
	w.chooses(t, c, group, ", timeout: 1s", "")
	require.NoError(t, c.Behave("HangSome", "Good"))
	w.namespaces(t, "chooser-honest")
	in := func(namespace, name, cpus string) string {
		return strings.Replace(claimWith(group, name, "{cpus: "+cpus+"}"), "default", namespace, 1)
	}
	// honest claims, each with another question, so that none is answered from the cache.
	honest := func(enough func(n int) bool) (took []time.Duration) {
		for !enough(len(took)) {
			question, began := c.count(), time.Now()
			bound, warnings := w.warned(t, in("chooser-honest", fmt.Sprint("honest-", question), fmt.Sprintf("15.%05d", question)))
			took = append(took, time.Since(began))
			assert.Empty(t, warnings, "We should ask for another namespace.")
			assert.Equal(t, "Class/large", classOf(bound), "We should get a ranked answer.")
		}
		slices.Sort(took)
		return took
	}
	before, during := honest(func(n int) bool { return n == 100 }), []time.Duration(nil)
	eventually(t, func(a *attempt) { // On a busy machine, an attack may end before another namespace has an answer.
		hostile, hung := fmt.Sprint("chooser-hostile-", c.hanging()), c.hanging()
		w.namespaces(t, hostile)
		var attack errgroup.Group
		var left atomic.Int32
		for i := range left.Add(8) {
			claim := documents(t, in(hostile, fmt.Sprint("hostile-", i), "1000"))[0]
			attack.Go(func() error { defer left.Add(-1); return w.Create(t.Context(), claim) })
		}
		eventually(t, func(a *attempt) { require.Greater(a, c.hanging(), hung) }, "The claims of one namespace should wait.")
		during = honest(func(int) bool { return left.Load() == 0 })
		require.NoError(a, attack.Wait())
		require.Greater(a, len(during), 1) // The last may be answered after the attack.
		_, warnings, _ := w.create(t, in(hostile, "last", "1000"))
		require.Contains(a, strings.Join(warnings, "\n"), "is unavailable (NamespaceCircuitOpen)", "We should not wait again for these claims.")
	}, "We should get answers for another namespace while claims hang.")
	t.Logf("p50 and p99 of another namespace: %v and %v before, %v and %v while 8 claims hang", load.Quantile(before, .5),
		load.Quantile(before, .99), load.Quantile(during, .5), load.Quantile(during, .99))
	w.binds(t, in("chooser-honest", "last", "16"), "Class/large", "The other namespace should still be asked about.")
}

// hanging counts the questions about claims for which HangSome hangs.
func (a *asked) hanging() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.all {
		if strings.Contains(r.GetClaim(), `1000`) {
			n++
		}
	}
	return n
}

// TestChooserLate has a claim that waits until it is ready: the leader asks the chooser then.
func TestChooserLate(t *testing.T) {
	notInPods(t, "Pods do not reach the chooser, which runs in this process.")
	const group, external = "late.chooser.test", ", timeout: 1s, whenUnavailable: Fail"
	w := sharedWorld(t)
	c := w.chooser(t)
	w.chooses(t, c, group, external, ", whenUnmatched: BindLater, claims: {when: '!has(claim.spec) || has(claim.spec.ready)'}")
	later := w.binds(t, claimWith(group, "later", "{cpus: 16}"), "", "The claim is not ready.")
	before := c.count()
	require.NoError(t, w.patch(t, "claims."+group, "later", `{"spec":{"ready":true}}`))
	w.awaitStored(t, later, "Class/large", "We should bind the claim to what the chooser ranks first.")
	assert.Greater(t, c.count(), before, "We should have asked the chooser.")
	assert.JSONEq(t, `{"spec":{"cpus":16}}`, c.last(t).GetClaim())
	assert.False(t, c.last(t).GetDryRun())
}
