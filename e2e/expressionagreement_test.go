package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestExpressionAgreement has the same 100 claims of kinds with expressions bound at admission and explained.
// Both have to give them the same class, leave the same ones alone, and say the same to their authors.
func TestExpressionAgreement(t *testing.T) {
	if inPods() {
		t.Skip("It needs the kubeconfig of an admin.")
	}
	t.Parallel()
	const group = "expressions.test"
	w := sharedWorld(t)
	kinds := []string{"Fitting", "Parted", "Scored", "Later"}
	plural := func(kind string) string { return strings.ToLower(kind) + "s." + group }
	lines := []string{"Class classes." + group + " Cluster", "Plan plans." + group + " Namespaced"}
	for _, kind := range kinds {
		lines = append(lines, kind+" "+plural(kind)+" Namespaced")
	}
	w.resources(t, lines...)

	const related = "related: [{name: plan, resource: plans." + group + ", nameExpression: \"has(claim.spec.plan) ? claim.spec.plan : ''\"}]"
	manifest := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: expressions-a, labels: {tenant: a}}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: expressions-b, labels: {tenant: b}}\n"
	registrations := vendor(group) +
		claimKind(plural("Fitting"), "{"+related+`, fits: [{name: Driver, expression: class.spec.driver == related.plan.spec.driver, message: of another driver}, {name: Size, expression: "class.spec.size > 1 && claim.spec.size <= class.spec.size"}], whenNoSelector: Any}`) +
		claimKind(plural("Parted"), `{partition: {claim: namespace.metadata.labels.tenant, class: "has(class.spec.tenant) ? class.spec.tenant : ''"}, fits: [{name: Who, expression: "!has(class.spec.team) || class.spec.team in request.userInfo.groups"}]}`) +
		claimKind(plural("Scored"), "{"+related+`, strategy: LowestScore, score: class.spec.price * double(claim.spec.size), classSelector: {expression: "has(related.plan) ? 'driver=' + related.plan.spec.driver : claim.spec.selector"}, whenUnmatched: Deny}`) +
		claimKind(plural("Later"), "{"+related+`, bindWhen: "!has(claim.spec.hold) && (!has(related.plan) || related.plan.spec.open)", whenNoSelector: Any}`) +
		classKind("classes."+group, fmt.Sprintf(`{claimKinds: [%s, %s, %s, %s], default: {expression: class.spec.usual}, weight: {expression: class.spec.size}, offerWhen: "!has(class.spec.ready) || class.spec.ready"}`,
			plural("Fitting"), plural("Parted"), plural("Scored"), plural("Later")))
	random := rand.New(rand.NewPCG(17, 100)) //nolint:gosec // It has to be reproducible.
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for i := range 24 {
		driver := one("a", "b", "c")
		manifest += class(group, "Class", fmt.Sprint("class-", i), "labels: {driver: "+driver+"}, ") + fmt.Sprintf("spec: {driver: %s, size: %d, usual: %s, price: %d.5%s%s%s}\n",
			driver, random.IntN(5), one("true", "false", "false"), random.IntN(5), one("", ", tenant: a", ", tenant: b"), one("", "", ", team: 'system:authenticated'", ", team: others"), one("", ", ready: true", ", ready: false"))
	}
	for i, namespace := range []string{"a", "b", "a", "b"} {
		manifest += fmt.Sprintf("---\napiVersion: %s/v1\nkind: Plan\nmetadata: {namespace: expressions-%s, name: plan-%d}\nspec: {driver: %s, open: %s}\n", group, namespace, i/2, one("a", "b"), one("true", "false"))
	}
	w.apply(t, manifest) // First, so that the guard does not refuse one of several default classes.
	w.apply(t, registrations)
	w.awaitClasses(t, "classes."+group, 24)
	for _, kind := range kinds {
		w.awaitClaims(t, plural(kind))
	}

	var claims []string
	for i := range 100 {
		claims = append(claims, fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: expressions-%s, name: claim-%d}\nspec: {a: b%s%s%s%s}\n",
			group, kinds[i%len(kinds)], one("a", "b"), i, one("", ", size: 1", ", size: 2", ", size: 4", ", size: 9"), one("", "", ", plan: plan-0", ", plan: plan-1", ", plan: plan-2"),
			one("", "", "", ", hold: true"), one("", ", selector: driver=c", ", selector: 'driver in'", ", classSelector: {matchLabels: {driver: a}}")))
	}
	// kubectl and explain are of one user, whose groups nobody but the API server knows.
	explained := w.explain(t, claims, "--set=request.userInfo.groups=system:masters", "--set=request.userInfo.groups=system:authenticated")
	outcomes := map[string]int{}
	for i, item := range explained {
		outcomes[item.Outcome]++
		admitted, warnings, err := w.create(t, claims[i], client.DryRunAll)
		switch item.Outcome {
		case "Bound":
			require.NoError(t, err, claims[i])
			assert.Equal(t, item.Class.Kind+"/"+item.Class.Name, classOf(admitted), claims[i])
		case "Unmatched":
			said := fmt.Sprint(err)
			if err == nil {
				require.Len(t, warnings, 1, claims[i])
				said = warnings[0]
				assert.Empty(t, classOf(admitted), claims[i])
			}
			assert.Contains(t, said, item.Message[:strings.LastIndex(item.Message, "; ")], claims[i])
		case "LeftAlone":
			require.NoError(t, err, claims[i])
			assert.Empty(t, warnings, claims[i])
			assert.Empty(t, classOf(admitted), claims[i])
		case "Malformed":
			require.Error(t, err, claims[i])
			for _, e := range item.Errors {
				assert.Contains(t, err.Error(), e.Field+": "+e.Message, claims[i])
			}
		default:
			assert.Fail(t, "We should decide on every claim.", "%s: %s", claims[i], item.Message)
		}
	}
	for _, outcome := range []string{"Bound", "Unmatched", "LeftAlone", "Malformed"} {
		assert.GreaterOrEqual(t, outcomes[outcome], 5, "We should come across %s: %v", outcome, outcomes)
	}
}
