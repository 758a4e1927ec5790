package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestAnnotate has claims say why they have their class, whoever gave it.
func TestAnnotate(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const group = "annotate.test"
	w.register(t, group, "{choice: {annotate: Decision}, admission: {defaulting: Policy}, whenUnmatched: BindLater}")
	late := w.created(t, claim(group, "late"))
	began := time.Now().Truncate(time.Second)
	w.apply(t, class(group, "Class", "only", isDefault))
	record := func(t require.TestingT, claim *unstructured.Unstructured) (r map[string]any) {
		require.NoError(t, json.Unmarshal([]byte(claim.GetAnnotations()[v1beta1.DecisionAnnotation]), &r))
		at := must(time.Parse(time.RFC3339, fmt.Sprint(r["time"])))(t)
		assert.WithinRange(t, at, began, time.Now(), "We should say when.")
		delete(r, "time")
		return r
	}
	want := map[string]any{"reason": "MatchingClass", "class": "Class/only", "strategy": "WeightedRandom", "candidates": 1.0}
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKeyFromObject(late), late))
		require.Equal(c, want, record(c, late))
	}, "We should annotate a claim that is bound later.")
	w.awaitClasses(t, "classes."+group, 1)

	stored := w.created(t, claim(group, "now"))
	assert.Equal(t, want, record(t, stored), "We should annotate a claim that is bound when it is created.")
	unopinionated := w.created(t, manifestOf(t, unopinionated(group, "default")), client.DryRunAll)
	want["reason"] = "DefaultClass"
	assert.Equal(t, want, record(t, unopinionated), "We should not leave the default class to a policy, which cannot tell the time.")

	why := stored.GetAnnotations()
	stored.SetAnnotations(nil)
	unstructured.RemoveNestedField(stored.Object, "spec", "classRef")
	require.NoError(t, w.Update(t.Context(), stored))
	assert.Equal(t, "Class/only", classOf(stored))
	assert.Equal(t, why, stored.GetAnnotations(), "We should put back the reason with the class.")
	if inPods() {
		return // What follows needs the kubeconfig of an admin.
	}
	out, _, _, err := w.classbind(t.Context(), "explain", "claims."+group+"/now", "--namespace=default", "--kubeconfig="+w.plane.Kubeconfig)
	require.NoError(t, err)
	assert.Contains(t, out, `it was bound to "Class/only" at `)
	assert.Contains(t, out, `created now, it would get "Class/only"`)
}
