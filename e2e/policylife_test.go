package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// lifeKind is the claim kind whose policy TestPolicyLife follows.
const lifeKind = "claims.life.test"

// storedPolicy is that of the claim kind, with its binding.
type storedPolicy struct {
	policy  admissionregistrationv1.MutatingAdmissionPolicy
	binding admissionregistrationv1.MutatingAdmissionPolicyBinding
}

func (w *world) policy(t require.TestingT) (p storedPolicy) {
	name := client.ObjectKey{Name: lifeKind + v1alpha1.PolicySuffix}
	ctx := context.Background()
	require.NoError(t, w.Get(ctx, name, &p.policy))
	require.NoError(t, w.Get(ctx, name, &p.binding))
	return p
}

// awaitNoPolicy waits until there is neither a policy nor a binding.
func (w *world) awaitNoPolicy(t *testing.T) {
	t.Helper()
	name := client.ObjectKey{Name: lifeKind + v1alpha1.PolicySuffix}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.True(c, apierrors.IsNotFound(w.Get(t.Context(), name, &admissionregistrationv1.MutatingAdmissionPolicy{})))
		require.True(c, apierrors.IsNotFound(w.Get(t.Context(), name, &admissionregistrationv1.MutatingAdmissionPolicyBinding{})))
	}, patience, 50*time.Millisecond, "We should remove the policy.")
}

// TestPolicyLife follows a policy through all that changes it.
func TestPolicyLife(t *testing.T) {
	t.Parallel()
	const group, claims = "life.test", lifeKind
	w := newWorld(t, controlplane.Options{})
	r := w.serve(t)
	w.unreadable(t)
	w.counted(t)
	policyKinds(t, w, group, "")
	probe := unopinionated(group, "probe")

	t.Run("Healed", func(t *testing.T) {
		before := w.policy(t)
		edited := before.policy.DeepCopy()
		edited.Spec.FailurePolicy = new(admissionregistrationv1.Fail)
		edited.Spec.MatchConditions[0].Expression = "false"
		require.NoError(t, w.Update(t.Context(), edited))
		require.NoError(t, w.Delete(t.Context(), before.binding.DeepCopy()))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			after := w.policy(c)
			require.Equal(c, before.policy.Spec, after.policy.Spec)
			require.Equal(c, before.binding.Spec, after.binding.Spec)
		}, 20*time.Second, 100*time.Millisecond, "We should mend what somebody else changes.")
	})
	t.Run("NoDefault", func(t *testing.T) {
		require.NoError(t, w.annotate(t, "classes."+group, "first", defaultMark+"-"))
		w.awaitNoPolicy(t)
		w.awaitCondition(t, &v1alpha1.ClaimKind{}, claims, v1alpha1.ConditionDefaultedByPolicy, metav1.ConditionFalse, "no class is marked default")
		require.NoError(t, w.annotate(t, "classes."+group, "second", defaultMark+"=true"))
		w.awaitCondition(t, &v1alpha1.ClaimKind{}, claims, v1alpha1.ConditionDefaultedByPolicy, metav1.ConditionTrue, "Class/second")
		assert.Equal(t, "second", w.policy(t).binding.Spec.ParamRef.Name)
	})
	t.Run("Cordoned", func(t *testing.T) {
		require.NoError(t, w.annotate(t, "classes."+group, "second", v1alpha1.CordonedAnnotation+"=true"))
		w.awaitNoPolicy(t)
		w.awaitCondition(t, &v1alpha1.ClaimKind{}, claims, v1alpha1.ConditionDefaultedByPolicy, metav1.ConditionFalse, "Class/second is cordoned")
		require.NoError(t, w.annotate(t, "classes."+group, "second", v1alpha1.CordonedAnnotation+"-"))
		w.awaitPolicy(t, claims, manifestOf(t, probe))
	})
	t.Run("OrderFirst", func(t *testing.T) {
		w.apply(t, claimKind(claims, "{defaulting: Policy, order: First}"))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			p := w.policy(c)
			for _, owners := range [][]metav1.OwnerReference{p.policy.OwnerReferences, p.binding.OwnerReferences} {
				require.Len(c, owners, 1)
				require.Equal(c, v1alpha1.FirstConfiguration, owners[0].Name)
			}
		}, patience, 100*time.Millisecond, "We should have it go with the configuration of its order.")
		w.awaitPolicy(t, claims, manifestOf(t, probe))
	})
	t.Run("Webhook", func(t *testing.T) {
		w.apply(t, claimKind(claims, "{}"))
		w.awaitNoPolicy(t)
		k := &v1alpha1.ClaimKind{}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: claims}, k))
			require.Nil(c, meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionDefaultedByPolicy))
		}, patience, 50*time.Millisecond, "We should not speak of a policy that nobody asks for.")
		w.apply(t, claimKind(claims, "{defaulting: Policy}"))
		w.awaitPolicy(t, claims, manifestOf(t, probe))
	})
	t.Run("ClaimKindDeleted", func(t *testing.T) {
		w.kubectl(t, "delete", "claimkind", claims)
		w.awaitNoPolicy(t)
	})
	t.Run("NotPermitted", func(t *testing.T) { w.notPermitted(t, r) })
	t.Run("Counted", func(t *testing.T) { w.countsThem(t) })
}

const unreadableGroup = "unreadable.test"

// unreadable are claims whose classes classbind may list and watch, but not get.
func (w *world) unreadable(t *testing.T) {
	w.resources(t, "Claim claims."+unreadableGroup+" Namespaced", "Class classes."+unreadableGroup+" Cluster")
	w.apply(t, strings.Replace(vendor(unreadableGroup), "get, ", "", 1)+claimKind("claims."+unreadableGroup, "{defaulting: Policy}")+
		classKind("classes."+unreadableGroup, "{claimKinds: [claims."+unreadableGroup+"]}")+class(unreadableGroup, "Class", "usual", isDefault))
}

// notPermitted has no policy, because its author has to be allowed to read its parameter.
func (w *world) notPermitted(t *testing.T, r *replica) {
	const kind = "claims." + unreadableGroup
	w.awaitClaims(t, kind)
	w.awaitCondition(t, &v1alpha1.ClaimKind{}, kind, v1alpha1.ConditionDefaultedByPolicy, metav1.ConditionFalse,
		"label a ClusterRole that allows get of the classes with "+v1alpha1.AggregateLabel+"=true")
	before := calls(t, r)
	claim := unopinionated(unreadableGroup, "claim")
	require.NoError(t, w.Create(t.Context(), claim))
	assert.Equal(t, "Class/usual", classOf(claim), "We should give the default class ourselves.")
	assert.Equal(t, 1, calls(t, r)-before)
	w.apply(t, vendor(unreadableGroup))
	w.awaitPolicy(t, kind, manifestOf(t, unopinionated(unreadableGroup, "probe")))
}

// countedKinds watch their claims, each for another reason.
var countedKinds = map[string]string{"later.test": ", whenUnmatched: BindLater", "least.test": ", strategy: LeastClaims"}

// counted are claims of kinds that are counted.
func (w *world) counted(t *testing.T) {
	for group, spec := range countedKinds {
		w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster")
		w.apply(t, lateVendor(group)+claimKind("claims."+group, "{defaulting: Policy"+spec+"}")+
			classKind("classes."+group, "{claimKinds: [claims."+group+"]}")+class(group, "Class", "usual", isDefault))
	}
}

// countsThem counts the claims that an API server bound.
func (w *world) countsThem(t *testing.T) {
	for group := range countedKinds {
		kind := "claims." + group
		w.awaitPolicy(t, kind, manifestOf(t, unopinionated(group, "probe")))
		before := w.boundByPolicy(t, kind)
		for i := range 20 {
			require.NoError(t, w.Create(t.Context(), unopinionated(group, fmt.Sprint("claim-", i))))
		}
		assert.Equal(t, 20, w.boundByPolicy(t, kind)-before)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			k := &v1alpha1.ClaimKind{}
			require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: kind}, k))
			require.NotNil(c, k.Status.BoundClaims)
			require.EqualValues(c, 20, *k.Status.BoundClaims)
		}, patience, 50*time.Millisecond, "We should count claims of %q that we were not asked about.", kind)
	}
}
