package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestExplicit has claims that name a class themselves, where that is checked.
func TestExplicit(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const group = "explicit.test"
	w.register(t, group, "{reference: {path: .spec.classRef, explicit: Check}, classes: {fits: [{name: Size, expression: 'claim.spec.size <= class.size', message: too small}]}}",
		class(group, "Class", "large", isDefault)+"size: 10\n", class(group, "Class", "small", "")+"size: 1\n",
		class(group, "Class", "closed", "annotations: {classbind.io/cordoned: 'true'}, ")+"size: 10\n")
	of := func(name, class string) string {
		reference := ""
		if class != "" {
			reference = fmt.Sprintf(", classRef: {apiVersion: %s/v1, kind: Class, name: %s}", group, class)
		}
		return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, name: %s}\nspec: {size: 5%s}\n", group, name, reference)
	}
	w.awaitRefused(t, of("probe", "none"), "which is not there", "We should see the API server call us.")
	for class, text := range map[string]string{"none": "not there", "small": "too small", "closed": "cordoned"} {
		_, _, err := w.create(t, of("refused", class))
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", class, err)
		require.ErrorContains(t, err, fmt.Sprintf(`it names the class "Class/%s", which is %s`, class, text))
		require.ErrorContains(t, err, "classbind explain -f FILE --unbound")
	}
	w.binds(t, of("drawn", ""), "Class/large", "We should let pass what we drew ourselves.")
	claim := w.binds(t, of("named", "large"), "Class/large", "We should let pass a class that fits.")
	w.apply(t, class(group, "Class", "new", "")+"size: 10\n")
	w.binds(t, of("new", "new"), "Class/new", "We should let pass a class that is new.")

	w.apply(t, class(group, "Class", "large", "annotations: {classbind.io/cordoned: 'true'}, ")+"size: 10\n")
	w.awaitRefused(t, of("probe", "large"), "cordoned", "We should see the class cordoned.")
	claim.SetLabels(map[string]string{"a": "b"})
	require.NoError(t, w.Update(t.Context(), claim), "We should let an update pass that does not touch the reference.")
	claim.Object["spec"].(map[string]any)["classRef"].(map[string]any)["name"] = "small"
	require.True(t, apierrors.IsForbidden(w.Update(t.Context(), claim)), "We should check a reference that changes.")

	if !inPods() { // It needs the kubeconfig of an admin.
		out, _, exit, err := w.classbind(t.Context(), "explain", "-f", write(t, of("asked", "small")), "--kubeconfig="+w.plane.Kubeconfig)
		require.NoError(t, err)
		assert.Equal(t, 1, exit)
		assert.Contains(t, out, `it names the class "Class/small", which is too small; it is refused, because reference.explicit is Check`)
	}
	w.apply(t, claimKind("claims."+group, "{reference: {path: .spec.classRef, explicit: Allow}}"))
	eventually(t, func(c *attempt) {
		_, _, err := w.create(t, of("allowed", "none"), client.DryRunAll)
		require.NoError(c, err)
	}, "We should check nothing where nobody says so.")
}
