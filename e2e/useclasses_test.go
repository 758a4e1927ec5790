package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

type offer struct {
	Classes []struct {
		Kind, Name string
		Labels     map[string]string
		Dropped    *struct{ Reason string }
	}
}

// TestUseClasses compares what "classbind classes" lists for five namespaces and five users with what 500 claims get.
func TestUseClasses(t *testing.T) {
	t.Parallel()
	const group, claims = "classes.use.test", 50
	notInPods(t, "The command needs the kubeconfig of an admin.")
	w := sharedWorld(t)
	var classes []string
	for i := range 24 {
		metadata := fmt.Sprintf("labels: {a: '%d', b: '%d'}, ", i%4, i%3)
		if i%8 == 7 {
			metadata += "annotations: {classbind.io/cordoned: 'true'}, "
		}
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), metadata))
	}
	w.register(t, group, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}}}", classes...)
	w.resources(t, "Own owns."+group+" Namespaced")
	w.apply(t, followsRoles+claimKind("owns."+group, "{classes: {kinds: [{name: classes."+group+"}], use: {subject: Requester}}}"))
	for _, kind := range []string{"claims.", "owns."} {
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind+group, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "")
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It has to be reproducible.
	some := func() (names []string) {
		for range random.IntN(8) {
			names = append(names, fmt.Sprint("class-", random.IntN(24)))
		}
		return append(names, "none")
	}
	got := map[bool]int{}
	for n := range 10 {
		kind, namespace, by, flags := "Claim", fmt.Sprint("classes-team-", n), client.Client(w), []string(nil)
		w.kubectl(t, "create", "namespace", namespace)
		if n < 5 {
			w.apply(t, namespaceMayUse(group, namespace, some()...))
		} else {
			user := fmt.Sprint("classes-user-", n)
			kind, by, flags = "Own", w.as(t, user, group), []string{"--as=" + user}
			for i, name := range some() {
				w.apply(t, mayUse(fmt.Sprintf("%s.%d", user, i), "", "kind: User, name: "+user, group, "classes", name))
			}
		}
		plural := map[string]string{"Claim": "claims.", "Own": "owns."}[kind] + group
		out, stderr, _, err := w.classbind(t.Context(), append([]string{"classes", plural, "-n", namespace, "-o", "json", "--kubeconfig=" + w.plane.Kubeconfig}, flags...)...)
		require.NoError(t, err)
		report := struct{ Items []offer }{}
		require.NoError(t, json.Unmarshal([]byte(out), &report), "%s%s", out, stderr)
		require.Len(t, report.Items, 1)
		require.Len(t, report.Items[0].Classes, 24, "We should list every class.")
		for i := range claims {
			want := map[string]string{"a": fmt.Sprint(random.IntN(4))}
			if i%2 == 0 {
				want["b"] = fmt.Sprint(random.IntN(3))
			}
			var may []string
			for _, c := range report.Items[0].Classes {
				if c.Dropped == nil && c.Labels["a"] == want["a"] && (want["b"] == "" || c.Labels["b"] == want["b"]) {
					may = append(may, c.Kind+"/"+c.Name)
				}
			}
			labels := map[string]any{}
			for k, v := range want {
				labels[k] = v
			}
			claim := object(group, kind, fmt.Sprint("claim-", i))
			claim.SetNamespace(namespace)
			claim.Object["spec"] = map[string]any{"classSelector": map[string]any{"matchLabels": labels}}
			eventually(t, func(c *attempt) { // A right takes a moment, and an answer is kept for some.
				attempt := claim.DeepCopy()
				err := by.Create(t.Context(), attempt, client.DryRunAll)
				require.False(c, apierrors.IsForbidden(err), "%v", err)
				require.NoError(c, err)
				if len(may) == 0 {
					require.Empty(c, classOf(attempt), "We should give none, as was listed: %v", want)
				} else {
					require.Contains(c, may, classOf(attempt), "We should give one of those that were listed: %v", want)
				}
			})
			got[len(may) > 0]++
		}
	}
	t.Logf("%d claims got a class, and %d none", got[true], got[false])
	assert.Positive(t, got[true])
	assert.Positive(t, got[false])
}
