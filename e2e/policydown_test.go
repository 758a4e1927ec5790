package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// unopinionated is a claim without a selector, in the namespace default.
func unopinionated(group, name string) *unstructured.Unstructured {
	claim := &unstructured.Unstructured{}
	claim.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Claim"})
	claim.SetNamespace("default")
	claim.SetName(name)
	return claim
}

// policyWorld has claims whose default class, Class/first, the API server gives itself.
func policyWorld(t *testing.T, w *world, group, spec string, flags ...string) *replica {
	t.Helper()
	r := w.serve(t, flags...)
	policyKinds(t, w, group, spec)
	return r
}

// policyKinds are the kinds of this world.
func policyKinds(t *testing.T, w *world, group, spec string) {
	t.Helper()
	claims, classes := "claims."+group, "classes."+group
	w.resources(t, "Claim "+claims+" Namespaced", "Class "+classes+" Cluster")
	w.apply(t, lateVendor(group)+claimKind(claims, "{defaulting: Policy"+spec+"}")+classKind(classes, "{claimKinds: ["+claims+"]}"))
	w.awaitClaims(t, claims)
	w.awaitGuard(t, group, "Class", classes)
	w.apply(t, class(group, "Class", "first", isDefault)+class(group, "Class", "second", "labels: {tier: gold}, "))
	w.awaitClasses(t, classes, 2)
	w.awaitPolicy(t, claims, manifestOf(t, unopinionated(group, "probe")))
}

// TestPolicyWhileDown has claims without a selector bound while there is no classbind, and
// never to a class that is default no more.
func TestPolicyWhileDown(t *testing.T) {
	t.Parallel()
	const group, claims = "down.test", 1000
	w := newWorld(t, controlplane.Options{})
	r := policyWorld(t, w, group, "")
	require.NoError(t, r.Stop())

	var creations errgroup.Group
	creations.SetLimit(16)
	for i := range claims {
		creations.Go(func() error {
			claim := unopinionated(group, fmt.Sprint("claim-", i))
			if err := w.Create(t.Context(), claim); err != nil {
				return err
			}
			if class := classOf(claim); class != "Class/first" {
				return fmt.Errorf("%s is bound to %q", claim.GetName(), class)
			}
			return nil
		})
	}
	require.NoError(t, creations.Wait(), "We should see the API server bind them all.")
	selecting := unopinionated(group, "selecting")
	selecting.Object["spec"] = map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"tier": "gold"}}}
	refused := func(err error) {
		t.Helper()
		require.True(t, apierrors.IsInternalError(err), "%v", err)
		require.ErrorContains(t, err, "failed calling webhook", "We should refuse what only classbind can bind.")
	}
	refused(w.Create(t.Context(), selecting))

	require.NoError(t, w.annotate(t, "classes."+group, "first", defaultMark+"-"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.Error(c, w.Create(t.Context(), unopinionated(group, "moved"), client.DryRunAll))
	}, time.Second, 5*time.Millisecond, "We should see the API server know at once that the class is default no more.")
	for i := range 100 {
		refused(w.Create(t.Context(), unopinionated(group, fmt.Sprint("without-", i))))
	}
	// Nobody is there to be asked whether a class may become default.
	require.NoError(t, w.patch(t, "validatingwebhookconfigurations.admissionregistration.k8s.io", v1alpha1.ClassConfiguration, `{"webhooks":[]}`))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		err := w.annotate(t, "classes."+group, "second", defaultMark+"=true")
		require.NoError(c, err)
	}, patience, 100*time.Millisecond)
	for i := range 100 {
		refused(w.Create(t.Context(), unopinionated(group, fmt.Sprint("moved-", i))))
	}
	stored := w.claimsOf(t, group)
	assert.Len(t, stored, claims)

	w.serve(t)
	w.awaitCondition(t, &v1alpha1.ClaimKind{}, "claims."+group, v1alpha1.ConditionDefaultedByPolicy, metav1.ConditionTrue, "Class/second")
	w.awaitPolicy(t, "claims."+group, manifestOf(t, unopinionated(group, "probe")))
	claim := unopinionated(group, "follows")
	before := w.boundByPolicy(t, "claims."+group)
	require.NoError(t, w.Create(t.Context(), claim))
	assert.Equal(t, "Class/second", classOf(claim), "We should have the policy follow the default.")
	assert.Equal(t, 1, w.boundByPolicy(t, "claims."+group)-before)
}
