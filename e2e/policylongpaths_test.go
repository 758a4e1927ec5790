package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// policySettles is longer than the leader takes to compare the policies with those that are
// stored, twice.
const policySettles = 35 * time.Second

// TestPolicyOfLongPaths has the API server take the policy with the most and the longest paths
// that the schema allows, and give the default class by it. Then nobody writes it again.
func TestPolicyOfLongPaths(t *testing.T) {
	long(t)
	t.Parallel()
	w := newWorld(t, controlplane.Options{Audit: true})
	w.resources(t, "Claim claims.long.test Namespaced", "Class classes.long.test Cluster")
	long := func(letter string) string {
		return strings.Repeat("."+strings.Repeat(letter, 24), 9) + "." + strings.Repeat(letter, 30)
	}
	spec := "{defaulting: Policy, reference: {path: " + long("r") + "}, classSelector: {path: " + long("s") + "}, " +
		strings.TrimPrefix(longPaths(24, 30), "{")
	w.apply(t, vendor("long.test")+claimKind("claims.long.test", spec)+classKind("classes.long.test", "{claimKinds: [claims.long.test]}")+
		class("long.test", "Class", "gold", `annotations: {resourceclass.crossplane.io/is-default-class: "true"}, `))
	w.serve(t)
	const unopinionated = "apiVersion: long.test/v1\nkind: Claim\nmetadata: {namespace: default, name: mine}\nspec: {}\n"
	w.awaitPolicy(t, "claims.long.test", unopinionated)
	before := w.boundByPolicy(t, "claims.long.test")
	bound, _, err := w.create(t, unopinionated)
	require.NoError(t, err)
	assert.Equal(t, before+1, w.boundByPolicy(t, "claims.long.test"))
	name, _, err := unstructured.NestedString(bound.Object, append(v1alpha1.FieldPath(long("r")).Names(), "name")...)
	require.NoError(t, err)
	assert.Equal(t, "gold", name)

	written := w.policyWrites(t)
	assert.NotZero(t, written)
	require.Never(t, func() bool { return w.policyWrites(t) != written }, policySettles, time.Second, "We should write what differs alone.")
}

// policyWrites counts the writes of policies and bindings.
func (w *world) policyWrites(t *testing.T) (n int) {
	t.Helper()
	for _, e := range w.audited(t) {
		if e.Verb == "patch" && e.Stage == auditv1.StageResponseComplete && e.ObjectRef != nil && strings.HasPrefix(e.ObjectRef.Resource, "mutatingadmissionpolic") {
			n++
		}
	}
	return n
}
