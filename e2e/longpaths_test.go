package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// manyPaths is how many claim kinds are registered with long paths: more than
// v1beta1.MaxEntriesBytes has room for, and more than etcd takes in one object.
const manyPaths = 40

// longPaths is a spec with as many paths to skip as the schema allows, each of ten names: nine of so many letters, and the last of so many.
func longPaths(letters, last int) string {
	paths := make([]string, 16)
	for i := range paths {
		paths[i] = strings.Repeat("."+strings.Repeat("a", letters), 9) + "." + strings.Repeat(string(rune('a'+i)), last)
	}
	return "{claims: {skipIfSet: [{path: " + strings.Join(paths, "}, {path: ") + "}]}}"
}

// TestManyLongPaths registers more than the webhook configuration has room for: two thirds of it with the longest paths that the schema
// allows, which are the most to store, and the rest with as many names of one letter, which are the most to compile for their length. It is
// not parallel: the API server compiles for seconds.
func TestManyLongPaths(t *testing.T) {
	long(t)
	w := newWorld(t, controlplane.Options{Audit: true})
	resources := []string{
		"Claim claims.before.test Namespaced", "Class classes.before.test Cluster",
		"Claim claims.later.test Namespaced", "Class classes.later.test Cluster", "Class classes.long.test Cluster",
	}
	var long strings.Builder
	var served []string
	for i := range manyPaths {
		resources = append(resources, fmt.Sprintf("Claim%02d %s Namespaced", i, manyPathsKind(i)))
		spec := longPaths(24, 30)
		if i%3 == 1 {
			spec = longPaths(1, 1)
		}
		long.WriteString(claimKind(manyPathsKind(i), spec))
		served = append(served, manyPathsKind(i))
	}
	w.resources(t, resources...)
	w.apply(t, vendor("long.test")+classKind("classes.long.test", "{claimKinds: [{name: "+strings.Join(served, "}, {name: ")+"}]}"))
	for _, group := range []string{"before.test", "later.test"} {
		w.apply(t, vendor(group)+classKind("classes."+group, "{claimKinds: [{name: claims."+group+"}]}")+class(group, "Class", "only", ""))
	}
	bound := func(group, name string) {
		w.binds(t, claim(group, name), "Class/only", "We should bind the claims of others.")
	}

	w.apply(t, claimKind("claims.before.test", "{}"))
	w.serve(t)
	w.awaitClaims(t, "claims.before.test")
	w.awaitClasses(t, "classes.before.test", 1)
	w.apply(t, long.String())
	entries := w.awaitLongPaths(t)
	t.Logf("%d of %d have an entry; the configuration has %d bytes.", entries, manyPaths, w.claimEntries(t).Size())
	assert.Greater(t, entries, 10, "We should leave out no more than has to be.")
	assert.Less(t, entries, manyPaths, "We should leave out what has no room.")
	bound("before.test", "with")

	w.apply(t, claimKind("claims.later.test", "{reference: {path: .spec.classRef, onUnbind: Allow}}")) // Its conditions are short.
	w.awaitClaims(t, "claims.later.test")                                                              // There is room for what is small.
	w.awaitClasses(t, "classes.later.test", 1)
	bound("later.test", "with")

	w.kubectl(t, "patch", "claimkind", "claims.before.test", "--type=merge", "-p", `{"spec":{"claims":{"skipIfSet":[{"path":".spec.other"}]}}}`)
	eventually(t, func(c *attempt) {
		entries := w.claimEntries(t)
		require.Equal(c, "claims.before.test"+v1beta1.BindSuffix, entries.Webhooks[0].Name)
		require.Contains(c, entries.Webhooks[0].MatchConditions[1].Expression, `["other"]`)
	}, "We should write the change of a registration.")
	bound("before.test", "changed")
	assert.Equal(t, entries, w.awaitLongPaths(t), "We should leave out the same.")
	w.noWriteFailed(t)
}

func manyPathsKind(i int) string { return fmt.Sprintf("claims%02d.long.test", i) }

func (w *world) claimEntries(t *testing.T) *admissionregistrationv1.MutatingWebhookConfiguration {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: v1beta1.LastConfiguration}, configuration))
	return configuration
}

// awaitLongPaths waits until the status of each of manyPaths reports whether there is
// an entry for it, and returns how many have one: the first that were registered.
func (w *world) awaitLongPaths(t *testing.T) (served int) {
	eventually(t, func(c *attempt) {
		has := map[string]bool{}
		for _, e := range w.claimEntries(t).Webhooks {
			has[e.Name] = true
		}
		served = 0
		for i := range manyPaths {
			k := &v1beta1.ClaimKind{}
			require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: manyPathsKind(i)}, k))
			ready := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionReady)
			require.NotNil(c, ready)
			if has[k.Name+v1beta1.BindSuffix] {
				require.Equal(c, v1beta1.ReasonServed, ready.Reason)
				require.Equal(c, i, served, "We should leave out the last by name.")
				served++
				continue
			}
			require.Equal(c, v1beta1.ReasonTooLarge, ready.Reason, "We should say in the status that there is no room.")
			require.Contains(c, ready.Message, "claims are not bound: the webhook configuration has no room for its entry")
		}
	})
	return served
}

// noWriteFailed of the webhook configuration for claims, but for conflicts, after which the next is better.
func (w *world) noWriteFailed(t *testing.T) {
	var writes int
	var slowest time.Duration
	for _, e := range w.audited(t) {
		if e.Verb != "patch" || e.Stage != auditv1.StageResponseComplete || e.ObjectRef == nil || e.ObjectRef.Resource != "mutatingwebhookconfigurations" {
			continue
		}
		writes++
		slowest = max(slowest, e.StageTimestamp.Sub(e.RequestReceivedTimestamp.Time))
		assert.Contains(t, []int32{http.StatusOK, http.StatusConflict}, e.ResponseStatus.Code, "We should write nothing that the API server refuses.")
	}
	t.Logf("The API server took %s for the slowest of %d writes.", slowest.Round(time.Millisecond), writes)
	assert.NotZero(t, writes)
}
