package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

const agreementGroup = "agreement.test"

// TestAgreement has the same claims bound at admission, bound later and explained.
// Each way has to give them the same class, leave the same ones alone, and say the
// same to their authors.
func TestAgreement(t *testing.T) {
	long(t)
	const kind = "claims." + agreementGroup
	w := newWorld(t, controlplane.Options{})
	w.serve(t, "--late-binding-rate=500")
	w.resources(t, "Claim "+kind+" Namespaced", "Red reds."+agreementGroup+" Cluster", "Blue blues."+agreementGroup+" Namespaced")
	w.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, labels: {team: a}}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team-b}\n")
	claims := agreementClaims(500)
	var creations errgroup.Group // Nobody binds them yet.
	creations.SetLimit(16)
	for _, claim := range claims {
		creations.Go(func() error {
			_, _, err := w.create(t, claim)
			return err
		})
	}
	require.NoError(t, creations.Wait())

	manifest := lateVendor(agreementGroup) + classKind("reds."+agreementGroup, "{claimKinds: ["+kind+"]}") + classKind("blues."+agreementGroup, "{claimKinds: ["+kind+"]}") +
		class(agreementGroup, "Red", "usual", isDefault) + class(agreementGroup, "Red", "cordoned", `labels: {tier: steel}, annotations: {classbind.io/cordoned: "true"}, `)
	for i := range 8 {
		manifest += class(agreementGroup, "Red", fmt.Sprint("red-", i), fmt.Sprintf("labels: {tier: %s, cores: %q}, ", []string{"gold", "silver"}[i%2], fmt.Sprint(i))) +
			class(agreementGroup, "Blue", fmt.Sprint("blue-", i), fmt.Sprintf("namespace: team-%s, labels: {tier: %s}, ", []string{"a", "b"}[i/4], []string{"gold", "iron"}[i%2]))
	}
	w.apply(t, manifest)
	w.awaitClasses(t, "reds."+agreementGroup, 10)
	w.awaitClasses(t, "blues."+agreementGroup, 8)
	w.apply(t, claimKind(kind, "{whenUnmatched: BindLater, namespaceSelector: {matchLabels: {team: a}}}"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		k := &v1alpha1.ClaimKind{}
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: kind}, k))
		require.NotNil(c, k.Status.WaitingClaims)
	}, patience, 50*time.Millisecond)

	explained := w.explain(t, claims)
	outcomes := map[string]int{}
	for _, item := range explained {
		outcomes[item.Outcome]++
	}
	for _, outcome := range []string{"Bound", "Unmatched", "LeftAlone", "Malformed"} {
		require.GreaterOrEqual(t, outcomes[outcome], 20, "We should come across %s: %v", outcome, outcomes)
	}
	late := w.boundLater(t, explained)
	t.Logf("%d claims: %v", len(claims), outcomes)
	all := &unstructured.Unstructured{}
	all.SetGroupVersionKind(schema.GroupVersionKind{Group: agreementGroup, Version: "v1", Kind: "Claim"})
	require.NoError(t, w.DeleteAllOf(t.Context(), all, client.InNamespace("team-a")))
	require.NoError(t, w.DeleteAllOf(t.Context(), all, client.InNamespace("team-b")))
	for i, item := range explained {
		admitted, warnings, err := w.create(t, claims[i], client.DryRunAll)
		switch item.Outcome {
		case "Bound":
			require.NoError(t, err)
			assert.Equal(t, item.Class.Kind+"/"+item.Class.Name, classOf(admitted), claims[i])
			assert.Equal(t, classOf(admitted), late[i].class, claims[i])
		case "Unmatched":
			require.NoError(t, err)
			require.Len(t, warnings, 1)
			assert.Equal(t, warnings[0], item.Message, claims[i])
			assert.Equal(t, warnings[0], late[i].note, claims[i])
			assert.Empty(t, late[i].class, claims[i])
		case "LeftAlone":
			require.NoError(t, err)
			assert.Empty(t, warnings)
			assert.NotContains(t, classOf(admitted), "Red/", claims[i])
			assert.Equal(t, classOf(admitted), late[i].class, claims[i])
			assert.Empty(t, late[i].note, claims[i])
		case "Malformed":
			require.Error(t, err, claims[i])
			assert.Empty(t, late[i].class, claims[i])
			for _, e := range item.Errors {
				assert.Contains(t, err.Error(), e.Field+": "+e.Message)
				assert.Contains(t, late[i].note, e.Field+": "+e.Message)
			}
		}
	}
}

// agreementClaims are manifests of claims of every sort, with names.
func agreementClaims(n int) (manifests []string) {
	random := rand.New(rand.NewPCG(14, 1)) //nolint:gosec // It has to be reproducible.
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for i := range n {
		annotations := one("", "", "", "annotations: {classbind.io/class-selector: \"tier in (gold,iron),cores!=3\"}, ",
			"annotations: {classbind.io/class-selector: \"cores>4\"}, ", "annotations: {classbind.io/class-selector: \"tier=-gold-\"}, ")
		spec := one("{}", "{classSelector: {}}", "{classSelector: {matchLabels: {tier: gold}}}", "{classSelector: {matchLabels: {tier: bronze}}}",
			"{classSelector: {matchLabels: {tier: steel}}}", "{classSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [gold, silver]}]}}",
			"{classSelector: {matchExpressions: [{key: cores, operator: Exists}, {key: tier, operator: In, values: [silver]}]}}",
			"{classSelector: {matchExpressions: [{key: tier, operator: Foo}]}}", "{classSelector: gold}", "{classRef: {kind: Green, name: mine}}",
			"{resourceRef: {name: there}, classSelector: gold}")
		manifests = append(manifests, fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {%snamespace: team-%s, name: claim-%d}\nspec: %s\n",
			agreementGroup, annotations, one("a", "a", "a", "b"), i, spec))
	}
	return manifests
}

// explanation is as much of an item of explain's report as is compared.
type explanation struct {
	Claim            struct{ Namespace, Name string }
	Outcome, Message string
	Class            *struct{ Kind, Name string }
	Errors           []struct{ Field, Message string }
}

func (w *world) explain(t *testing.T, claims []string, flags ...string) []explanation {
	t.Helper()
	file := filepath.Join(t.TempDir(), "claims.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(claims, "---\n")), 0o600))
	args := append([]string{"explain", "--filename=" + file, "--output=json"}, flags...)
	cmd := exec.CommandContext(t.Context(), command, args...) //nolint:gosec // It runs the command under test.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.Kubeconfig, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.Output()
	var report struct{ Items []explanation }
	require.NoError(t, json.Unmarshal(out, &report), "%v: %s", err, out)
	require.Len(t, report.Items, len(claims))
	return report.Items
}

// later is what late binding made of a claim: its class, or what it told the author.
type later struct{ class, note string }

// boundLater waits until late binding has done with the claims what explain says of them.
func (w *world) boundLater(t *testing.T, explained []explanation) []later {
	t.Helper()
	found := make([]later, len(explained))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		classes := map[string]string{}
		notes := map[string]string{}
		for _, namespace := range []string{"team-a", "team-b"} {
			for _, claim := range w.claimsIn(t, agreementGroup, namespace) {
				classes[claim.GetName()] = classOf(&claim)
			}
			events := &eventsv1.EventList{}
			require.NoError(c, w.List(t.Context(), events, client.InNamespace(namespace)))
			for i := range events.Items {
				if events.Items[i].Reason == v1alpha1.EventNoMatchingClass {
					notes[events.Items[i].Regarding.Name] = events.Items[i].Note
				}
			}
		}
		for i, item := range explained {
			found[i] = later{classes[item.Claim.Name], notes[item.Claim.Name]}
			switch item.Outcome {
			case "Bound":
				require.NotEmpty(c, found[i].class, "%+v", item)
			case "Unmatched", "Malformed":
				require.NotEmpty(c, found[i].note, "%+v", item)
			}
		}
	}, 2*patience, 500*time.Millisecond)
	return found
}
