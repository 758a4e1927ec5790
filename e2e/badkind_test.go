package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// conversion of the CRD of the bad class kind: its classes are stored as v1 and
// listed as v2, which needs the webhook, which nobody serves, or nothing.
const (
	brokenConversion = `{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://localhost:1/convert"}}}`
	noConversion     = `{strategy: None, webhook: null}`
)

func conversion(how string) string {
	const version = `{name: %, served: true, storage: $, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}`
	return "spec: {conversion: " + how + ", versions: [" +
		strings.NewReplacer("%", "v1", "$", "false").Replace(version) + ", " + strings.NewReplacer("%", "v2", "$", "true").Replace(version) + "]}"
}

// TestOneBadClassKind restarts all replicas while the API server answers 500 to
// whoever lists the classes of one kind, which it listed before.
func TestOneBadClassKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	for _, group := range []string{"good.test", "bad.test"} {
		w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster")
		w.apply(t, vendor(group)+claimKind("claims."+group, "{}")+classKind("classes."+group, "{claimKinds: [claims."+group+"]}")+class(group, "Class", "only", ""))
	}
	before, err := w.run()
	require.NoError(t, err)
	ready, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = before.Ready(ready)
	for _, group := range []string{"good.test", "bad.test"} {
		if err == nil {
			w.awaitClaims(t, "claims."+group)
			w.awaitClasses(t, "classes."+group, 1)
		}
	}
	require.NoError(t, before.Stop())
	require.NoError(t, err, "We should be ready while all is well. The log:\n%s", before.log)

	w.kubectl(t, "patch", "crd", "classes.bad.test", "--type=merge", "--patch", conversion(brokenConversion))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, _, err := w.Kubectl(t.Context(), nil, "get", "--raw", "/apis/bad.test/v2/classes")
		require.ErrorContains(c, err, "conversion webhook")
	}, patience, 100*time.Millisecond)

	start := time.Now()
	replicas := []*replica{w.start(t), w.start(t)}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		bound, _, err := w.create(t, claim("good.test", "good"))
		require.NoError(c, err)
		require.Equal(c, "Class/only", classOf(bound))
	}, patience, 100*time.Millisecond, "We should bind the claims of others.")
	t.Logf("Claims of the other kind were bound %s after the restart.", time.Since(start).Round(time.Millisecond))
	for _, r := range replicas {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		require.NoError(t, r.Ready(ctx), "We should be ready.")
		cancel()
	}
	w.awaitReason(t, &v1alpha1.ClaimKind{}, "claims.bad.test", v1alpha1.ReasonClassKindMissing)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, _, err := w.create(t, claim("bad.test", "bad"))
		require.ErrorContains(c, err, `the classes of "classes.bad.test", which were offered to claims of "claims.bad.test" before, are not known yet: `,
			"We should not decide on part of the classes, and name what is missing.")
		require.Less(c, len(err.Error()), 2048)
	}, patience, 100*time.Millisecond)
	k := &v1alpha1.ClassKind{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "classes.bad.test"}, k))
	assert.True(t, meta.IsStatusConditionTrue(k.Status.Conditions, v1alpha1.ConditionReady), "We should wait for it at the next restart, too: %v", k.Status.Conditions)

	w.kubectl(t, "patch", "crd", "classes.bad.test", "--type=merge", "--patch", conversion(noConversion))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		bound, _, err := w.create(t, claim("bad.test", "bad"))
		require.NoError(c, err)
		require.Equal(c, "Class/only", classOf(bound))
	}, patience, 100*time.Millisecond, "We should bind its claims once it answers.")
	w.awaitClaims(t, "claims.bad.test")
}
