package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestRelatedLists has claims see all objects of their namespace with a label: when they are created, while they wait, and when it is
// counted what they use.
func TestRelatedLists(t *testing.T) {
	notInPods(t, "Each of several replicas counts for itself.")
	const group = "lists.test"
	w := sharedWorld(t)
	w.resources(t, "Quota quotas."+group+" Namespaced")
	w.awaitCRDs(t, "quotas."+group)
	quota := func(namespace, name, label, spec string) {
		w.apply(t, fmt.Sprintf("apiVersion: %s/v1\nkind: Quota\nmetadata: {namespace: %s, name: %s, labels: {for: %s}}\nspec: %s\n",
			group, namespace, name, label, spec))
	}
	w.registerCapacity(t, group, fmt.Sprintf(`{whenUnmatched: BindLater, classes: {
  related: [{name: quotas, resource: quotas.%s, selector: {matchLabels: {for: storage}}}],
  fits: [{name: Quota, expression: "related.quotas.all(q, q.spec.?closed.orValue('') != class.metadata.name)", message: forbidden by a quota}],
  usage: [{name: size, expression: "1 + related.quotas.map(q, has(q.spec.factor), q.spec.factor).size()"}]}}`, group), "[{name: size}]",
		class(group, "Class", "disk", `annotations: {classbind.io/capacity-size: "4"}, `))

	probe := claim(group, "probe")
	w.awaitBound(t, probe, "Class/disk", "A namespace without quotas forbids nothing.")
	quota("default", "one", "network", "{closed: disk}")
	quota("default", "two", "storage", "{closed: other}")
	quota("kube-system", "three", "storage", "{closed: disk}")
	w.binds(t, claim(group, "first"), "Class/disk", "No quota of the namespace with the label forbids the class.")
	require.NoError(t, w.label(t, "quotas."+group, "one", "for=storage"))
	w.awaitBound(t, probe, "", "A label should have a quota count.")
	second, warnings := w.warned(t, claim(group, "second"))
	assert.Empty(t, classOf(second))
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "forbidden by a quota")
	out, _, exit := w.classbind(t, "explain", "claim."+group+"/second", "--namespace=default", "--kubeconfig="+w.plane.Kubeconfig)
	assert.Equal(t, 1, exit)
	assert.Contains(t, out, "quotas is a list of 2: quotas."+group+" default/*")
	assert.Contains(t, out, `related.quotas[].metadata.name = ["one","two"], related.quotas[].spec.closed = ["disk","other"]`)
	w.remove(t, "quotas."+group, "one")
	w.awaitStored(t, second, "Class/disk", "A claim that waits should get its class when the quota is gone.")

	require.NoError(t, w.patch(t, "quotas."+group, "two", `{"spec": {"factor": 1}}`))
	w.awaitBound(t, probe, "", "The claims that have the class should be counted again.")
	third := w.binds(t, claim(group, "third"), "", "Two claims use all.")
	require.NoError(t, w.patch(t, "quotas."+group, "two", `{"spec": {"factor": null}}`))
	w.awaitStored(t, third, "Class/disk", "They should be counted again.")
	for i := range v1beta1.MaxRelatedListed {
		quota("default", fmt.Sprint("quota-", i), "storage", "{a: b}")
	}
	w.awaitRefused(t, probe, fmt.Sprintf(`selects more than %d quotas.%s of namespace "default"`, v1beta1.MaxRelatedListed, group),
		"No claim should be decided on by a part of a list.")
}

// TestRelatedSelectors refuses what cannot select, where it is applied.
func TestRelatedSelectors(t *testing.T) {
	w := sharedWorld(t)
	claims := func(related string) string {
		return claimKind("claims.selectors.test", "{classes: {related: [{name: quotas, resource: resourcequotas, "+related+"}]}}")
	}
	for name, tc := range map[string]struct{ manifest, want string }{
		"Operator": {
			claims("selector: {matchExpressions: [{key: a, operator: Near}]}"),
			`Unsupported value: "Near"`,
		},
		"Both": {
			claims(`nameExpression: "'a'", selector: {}`),
			"name one of nameExpression and selector",
		},
		"Neither": {
			claims("version: v1"),
			"name one of nameExpression and selector",
		},
		"Class": {
			classKind("classes.selectors.test", "{related: [{name: quotas, resource: resourcequotas, selector: {}}]}"),
			"only a ClaimKind may have a selector of objects",
		},
	} {
		t.Run(name, func(t *testing.T) { w.awaitRefused(t, tc.manifest, tc.want, "We should say what is wrong.") })
	}
}
