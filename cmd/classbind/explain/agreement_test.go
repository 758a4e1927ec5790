package explain

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/webhook"
)

// TestExplainAgreesWithTheServer compares explain with the server on 1,000 generated claims and classes, from the object of a claim to the
// reference that is patched into it, or the answer that its author gets.
func TestExplainAgreesWithTheServer(t *testing.T) {
	outcomes := map[Outcome]int{}
	for i := range 1000 {
		g := rand.New(rand.NewPCG(13, uint64(i))) //nolint:gosec // It has to be reproducible.
		one := func(of ...string) string { return of[g.IntN(len(of))] }
		registrations := []string{
			fmt.Sprintf(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": `+
				`{"reference": %s, "selector": {"whenAbsent": %q}, "choice": {"strategy": %q, "seed": {"from": %q}}, "whenUnmatched": %q}}`, one(
				`{"path": ".spec.classRef", "whenEmpty": "LeaveAlone"}`, `{"path": ".spec.classRef"}`, `{"path": ".spec.classRef", "form": "TypedObjectReference"}`,
				`{"path": ".spec.classRef", "form": "TypedLocalObjectReference"}`, `{"path": ".spec.classRef", "form": "GroupKindReference"}`,
				`{"path": ".spec.classRef", "form": "KindReference", "whenEmpty": "LeaveAlone"}`, `{"path": ".spec.classRef", "form": "NamespacedReference"}`,
				`{"path": ".spec.classRef", "form": "LocalObjectReference", "whenParentAbsent": "LeaveAlone"}`, `{"path": ".spec.classRef", "form": "Name"}`,
				`{"label": "example.org/class", "form": "Name", "whenEmpty": "LeaveAlone"}`, `{"annotation": "example.org/class", "form": "Name"}`),
				one("Default", "Default", "Any", "LeaveAlone"), one("Random", "WeightedRandom", "HighestWeight"), one("Claim", "Request"), one("Admit", "Deny")),
			classKind,
			`{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "slowclasses.example.org"}, "spec": {"claimKinds": [{"name": "` +
				one("databases.example.org", "others.example.org") + `"}], "weight": {"path": ".weight"}}}`,
		}
		for n := range g.IntN(12) {
			kind := one("FastClass", "SlowClass")
			registrations = append(registrations, fmt.Sprintf(
				`{"apiVersion": "example.org/v1", "kind": %q, "weight": %s, "metadata": {"name": "class-%d", "labels": {"tier": %q, "region": %q}, `+
					`"annotations": {"resourceclass.crossplane.io/weight": %q, "resourceclass.crossplane.io/is-default-class": %q, "classbind.io/cordoned": %q}}}`,
				kind, one("0", "1", "7", "-1"), n, one("gold", "silver"), one("eu", "us"), one("0", "1", "7", "much"),
				one("true", "false", "false", "false"), one("true", "false", "false", "false")))
		}
		d := documentsOf(t, fmt.Sprintf(`{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"namespace": "team", %s%s}%s}`,
			one(fmt.Sprintf(`"name": "claim-%d"`, i), fmt.Sprintf(`"name": "claim-%d"`, i), `"generateName": "claim-"`),
			one("", "", "", `, "labels": {"example.org/class": "mine"}`, `, "annotations": {"example.org/class": ""}`), one("",
				`, "spec": {"classSelector": {}}`,
				`, "spec": {"classSelector": {"matchLabels": {"tier": "gold"}}}`,
				`, "spec": {"classSelector": {"matchLabels": {"tier": "gold", "region": "eu"}}}`,
				`, "spec": {"classSelector": {"matchLabels": {"tier": "bronze"}}}`,
				`, "spec": {"classSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}}`,
				`, "spec": {"classSelector": {"matchExpressions": [{"key": "tier", "operator": "Foo"}]}}`,
				`, "spec": {"classSelector": "gold"}`, `, "spec": {"classRef": "a"}`, `, "spec": {"classRef": ""}`,
				`, "spec": {"classRef": {"kind": "FastClass"}, "classSelector": {}}`, `, "spec": {"classRef": {"kind": "FastClass", "name": ""}}`,
				`, "spec": {"resourceRef": {}}`)))[0]

		outcomes[answeredAlike(t, registrations, d, v1beta1.SeedSource(one("", string(v1beta1.SeedClaim), "Day"))).Outcome]++
	}
	for _, o := range []Outcome{Bound, Unmatched, LeftAlone, Malformed, Undecided} {
		assert.GreaterOrEqual(t, outcomes[o], 50, "We should reach %s often enough to compare it: %v", o, outcomes)
	}
}

// assertAnswered compares an item with what the server answers.
func assertAnswered(t *testing.T, inv *selector.Inventory, reference v1beta1.Place, d world.Document, got *Item) {
	t.Helper()
	binder := &webhook.Binder{
		Snapshot: inv.Snapshot,
		Decider: &selector.Decider{
			Fresh: func() uint64 { return 7 }, Now: time.Now,
		},
	}
	raw, err := json.Marshal(d.Object)
	require.NoError(t, err)
	want, err := review(t, binder, &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: d.GetNamespace(), Name: d.GetName(), Object: runtime.RawExtension{Raw: raw},
		Kind:     metav1.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Database"},
		Resource: metav1.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "databases"},
	})
	if err != nil {
		require.Equal(t, Undecided, got.Outcome, "The server has no answer: %v", err)
		require.Contains(t, got.Message, err.Error())
		return
	}
	require.Equal(t, want.AuditAnnotations["reason"], got.Reason, "%s", raw)
	switch got.Outcome {
	case Bound:
		patch, err := jsonpatch.DecodePatch(want.Patch)
		require.NoError(t, err)
		patched, err := patch.Apply(raw)
		require.NoError(t, err)
		var bound map[string]any
		require.NoError(t, json.Unmarshal(patched, &bound))
		written, _, err := unstructured.NestedFieldNoCopy(bound, reference.Names()...)
		require.NoError(t, err)
		require.JSONEq(t, encode(t, written), encode(t, got.Reference), "We should print the reference that the claim has then: %s", want.Patch)
		require.Equal(t, want.AuditAnnotations["candidates"], fmt.Sprint(len(got.Explanation.Candidates)))
		require.Equal(t, strings.Join(want.Warnings, "\n"), got.Warning)
	case Unmatched:
		message := ""
		if want.Allowed {
			message = want.Warnings[0]
		} else { // The API server puts the claim before it.
			_, message, _ = strings.Cut(want.Result.Message, ": ")
		}
		require.Equal(t, message, got.Message[:strings.LastIndex(got.Message, "; ")], "We should print what the author of the claim gets")
	case LeftAlone:
		require.True(t, want.Allowed)
		require.Empty(t, want.Patch)
	case Malformed:
		require.False(t, want.Allowed)
		for _, e := range got.Errors {
			require.Contains(t, want.Result.Message, e.Field+": "+e.Message)
		}
	default:
		require.Fail(t, "The server has an answer", "%s", got.Outcome)
	}
}

// review asks the server by HTTP, as the API server does.
func review(t *testing.T, binder *webhook.Binder, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	t.Helper()
	request.UID = "1"
	question := encode(t, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	r := httptest.NewRequest(http.MethodPost, v1beta1.BindPath+"databases.example.org", strings.NewReader(question))
	r.Header.Set("Content-Type", "application/json")
	r.SetPathValue("name", "databases.example.org")
	w := httptest.NewRecorder()
	(&webhook.Handler{Review: binder.Review, Log: logr.Discard()}).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		status := metav1.Status{}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &status), w.Body)
		return nil, errors.New(strings.TrimPrefix(status.Message, "classbind cannot answer: "))
	}
	answer := admissionv1.AdmissionReview{}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	return answer.Response, nil
}

func documentsOf(t *testing.T, texts ...string) []world.Document {
	t.Helper()
	all, err := world.ParseManifests([]byte(documents(texts...)))
	require.NoError(t, err)
	return all
}

func encode(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

// answeredAlike explains a claim, and compares that with what a server answers whose inventory is filled as its watches do.
func answeredAlike(t *testing.T, registered []string, d world.Document, seed v1beta1.SeedSource) *Item {
	t.Helper()
	objects := documentsOf(t, registered...)
	r, err := world.OfFiles(t.Context(), objects, "classbind-system", "")
	require.NoError(t, err)
	r.Claims = []world.Document{d}
	k := &r.ClaimKinds[0]
	k.Spec.Choice.Seed.From = cmp.Or(seed, k.Spec.Choice.Seed.From) // The CRD would not let through each.
	items, err := (&options{fresh: func() uint64 { return 7 }}).answers(t.Context(), r, d, "default")
	require.NoError(t, err)
	require.Len(t, items, 1)

	inv := selector.NewInventory()
	inv.Open()
	inv.SetClaimKind(selector.NewClaimKind(k, rules.Serving(k, r.ClassKinds)...))
	for n := range r.ClassKinds {
		ck := &r.ClassKinds[n]
		kind := map[string]string{"fastclasses.example.org": "FastClass", "slowclasses.example.org": "SlowClass"}[ck.Name]
		gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}
		compiled := inventory.NewClassKind(ck, gvk, false, rules.Served(ck, r.ClaimKinds)...)
		var all []*inventory.Class
		for _, c := range objects {
			if c.GetKind() == kind {
				all = append(all, compiled.NewClass(&c.Unstructured, c.Object))
			}
		}
		inv.SetClasses(inventory.NewClasses(compiled, all))
	}
	t.Run(d.GetName(), func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Log(strings.Join(registered, "\n"), encode(t, items[0]))
			}
		}()
		assertAnswered(t, inv, k.Spec.Reference.Place, d, items[0])
	})
	return items[0]
}
