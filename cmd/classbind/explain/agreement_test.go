package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
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
			fmt.Sprintf(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": {"reference": %s, "selector": {"whenAbsent": %q}, "choice": {"strategy": %q, "seed": %q}, "whenUnmatched": %q}}`, one(
				`{"path": ".spec.classRef"}`, `{"path": ".spec.classRef", "whenEmpty": "Bind"}`, `{"path": ".spec.classRef", "form": "TypedObjectReference"}`,
				`{"path": ".spec.classRef", "form": "TypedLocalObjectReference"}`, `{"path": ".spec.classRef", "form": "GroupKindReference", "whenEmpty": "Bind"}`,
				`{"path": ".spec.classRef", "form": "KindReference"}`, `{"path": ".spec.classRef", "form": "NamespacedReference"}`,
				`{"path": ".spec.classRef", "form": "LocalObjectReference", "whenParentAbsent": "LeaveAlone"}`, `{"path": ".spec.classRef", "form": "Name", "whenEmpty": "Bind"}`,
				`{"label": "example.org/class", "form": "Name"}`, `{"annotation": "example.org/class", "form": "Name", "whenEmpty": "Bind"}`),
				one("Default", "Default", "Any", "LeaveAlone"), one("Random", "WeightedRandom", "HighestWeight"), one("Claim", "Request"), one("Admit", "Deny")),
			classKind, `{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "slowclasses.example.org"}, "spec": {"claimKinds": [{"name": "` + one("databases.example.org", "others.example.org") + `"}], "weight": {"path": ".weight"}}}`,
		}
		for n := range g.IntN(12) {
			kind := one("FastClass", "SlowClass")
			registrations = append(registrations, fmt.Sprintf(
				`{"apiVersion": "example.org/v1", "kind": %q, "weight": %s, "metadata": {"name": "class-%d", "labels": {"tier": %q, "region": %q}, "annotations": {"resourceclass.crossplane.io/weight": %q, "resourceclass.crossplane.io/is-default-class": %q, "classbind.io/cordoned": %q}}}`,
				kind, one("0", "1", "7", "-1"), n, one("gold", "silver"), one("eu", "us"), one("0", "1", "7", "much"), one("true", "false", "false", "false"), one("true", "false", "false", "false")))
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
				`, "spec": {"classRef": {"kind": "FastClass"}, "classSelector": {}}`, `, "spec": {"classRef": {"kind": "FastClass", "name": ""}}`, `, "spec": {"resourceRef": {}}`)))[0]

		outcomes[answeredAlike(t, g, registrations, nil, d, v1beta1.Seed(one("", string(v1beta1.SeedClaim), "Day"))).Outcome]++
	}
	for _, o := range []Outcome{Bound, Unmatched, LeftAlone, Malformed, Undecided} {
		assert.GreaterOrEqual(t, outcomes[o], 50, "We should reach %s often enough to compare it: %v", o, outcomes)
	}
}

// assertAnswered compares an item with what the server answers jane, who asks.
func assertAnswered(t *testing.T, inv *selector.Inventory, related readRelated, reference v1beta1.Place, d document, got *Item) {
	t.Helper()
	binder := &webhook.Binder{
		Snapshot: inv.Snapshot,
		Decider: &selector.Decider{
			Live:  func(_ context.Context, v *selector.View, _ claim.Claim) (*selector.View, error) { return v, nil },
			Fresh: func() uint64 { return 7 }, Now: time.Now, Related: related,
		},
	}
	raw, err := json.Marshal(d.Object)
	require.NoError(t, err)
	want, err := review(t, binder, &admissionv1.AdmissionRequest{
		UserInfo:  authenticationv1.UserInfo{Username: "jane", Groups: []string{"red", "green"}},
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
		require.Equal(t, want.AuditAnnotations["candidates"], fmt.Sprint(len(got.Candidates)))
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

func documentsOf(t *testing.T, texts ...string) []document {
	t.Helper()
	var all []document
	for _, text := range texts {
		var content map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &content), text)
		all = append(all, document{Unstructured: unstructured.Unstructured{Object: content}, where: "generated"})
	}
	return all
}

func encode(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

// TestExplainAgreesOnExpressions compares explain with the server on 1,000 generated registrations with expressions, their classes, related
// objects and claims.
func TestExplainAgreesOnExpressions(t *testing.T) {
	seen := map[string]int{}
	for i := range 1000 {
		g := expressions{rand.New(rand.NewPCG(17, uint64(i)))} //nolint:gosec // It has to be reproducible.
		claimKind, classKind, classes, related := g.claimKind(), g.classKind(), g.classes(), g.related()
		d := documentsOf(t, g.claim(i))[0]
		what := strings.Join([]string{claimKind, classKind, encode(t, d.Object)}, "\n")
		got := answeredAlike(t, g.Rand, slices.Concat([]string{claimKind, classKind}, classes), related, d, "")

		seen[got.Reason]++
		for _, drop := range got.Dropped {
			seen["dropped "+drop.Reason]++
			require.False(t, drop.Expression == "" && slices.Contains([]string{"Fit0", "Fit1", "Size", "NotOffered", "NoScore"}, drop.Reason), "We should say which expression dropped a class: %s", what)
		}
		for name, e := range map[string]*selector.Evaluation{"when": got.BindWhen, "selector": got.SelectorFrom, "partition": got.Partition} {
			if e != nil {
				seen[name]++
			}
		}
		for _, related := range got.Related {
			seen[fmt.Sprintf("related %t", related.Found)]++
		}
		for _, c := range got.Candidates {
			if c.Score != nil {
				seen["score"]++
			}
		}
	}
	for _, what := range []string{
		"MatchingClass", "NoMatchingClass", "DefaultClass", "NoDefaultClass", "NotYet", "Settled", "MalformedClaim", v1beta1.ReasonInvalidExpression,
		"dropped Fit0", "dropped Fit1", "dropped Size", "dropped NotOffered", "dropped NoScore", "dropped NotOfPartition",
		"when", "selector", "partition", "related true", "related false", "score",
	} {
		assert.GreaterOrEqual(t, seen[what], 20, "We should come across %q often enough to compare it: %v", what, seen)
	}
	t.Log(seen)
}

// answeredAlike explains a claim, and compares that with what a server answers whose inventory is filled as its watches do.
func answeredAlike(t *testing.T, g *rand.Rand, registered, related []string, d document, seed v1beta1.Seed) *Item {
	t.Helper()
	what := func() string { return strings.Join(append(registered, encode(t, d.Object)), "\n") }
	objects := documentsOf(t, registered...)
	r := newRegistrations("classbind-system")
	require.NoError(t, r.addAll(t.Context(), append(objects, documentsOf(t, related...)...)), what())
	r.claims = []document{d}
	k := &r.claimKinds[0]
	k.Spec.Choice.Seed = cmp.Or(seed, k.Spec.Choice.Seed) // The CRD would not let through each.
	r.settings.request = map[string]any{"userInfo": map[string]any{"username": "jane", "groups": []any{"red", "green"}}}
	o := &options{fresh: func() uint64 { return 7 }}
	items, err := o.answers(t.Context(), r, d, "default")
	require.NoError(t, err, what())
	require.Len(t, items, 1)

	compiled := selector.NewClaimKind(k, rules.Serving(k, r.classKinds)...)
	inv := selector.NewInventory()
	inv.Open()
	inv.SetClaimKind(compiled)
	known := map[rules.Key]map[types.NamespacedName]*expression.Object{} // as the claim kind sees them
	for _, kind := range compiled.RelatedKinds() {
		known[kind.Key()] = map[types.NamespacedName]*expression.Object{}
		for _, d := range documentsOf(t, related...) {
			if !isOf(kind.Resource, d.GroupVersionKind()) {
				continue
			}
			if kind.Resource == "namespaces" {
				d.SetLabels(map[string]string{"kubernetes.io/metadata.name": d.GetName(), "tenant": d.GetLabels()["tenant"]})
			}
			known[kind.Key()][types.NamespacedName{Namespace: d.GetNamespace(), Name: d.GetName()}] = kind.Fields.Project(d.Object)
		}
	}
	read := func(_ context.Context, _ string, kind *rules.Kind, namespace, name string) (*expression.Object, error) {
		objects, ok := known[kind.Key()]
		if !ok {
			return nil, fmt.Errorf("nobody needs %s", kind.Key())
		}
		return objects[types.NamespacedName{Namespace: namespace, Name: name}], nil
	}
	for _, kind := range compiled.RelatedKinds() {
		objects := known[kind.Key()]
		if g.IntN(2) == 0 { // They are new, and read live.
			objects = nil
		}
		inv.SetRelated(inventory.NewObjects(kind, kind.Resource == "plans.example.org", objects))
	}
	for n := range r.classKinds {
		ck := &r.classKinds[n]
		kind := map[string]string{"fastclasses.example.org": "FastClass", "slowclasses.example.org": "SlowClass"}[ck.Name]
		gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}
		compiled := inventory.NewClassKind(ck, gvk, false, rules.Served(ck, r.claimKinds)...)
		if compiled.Fault != nil {
			continue
		}
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
				t.Log(what(), encode(t, items[0]))
			}
		}()
		assertAnswered(t, inv, read, k.Spec.Reference.Place, d, items[0])
	})
	return items[0]
}

// expressions generates registrations with them, and what they look at.
type expressions struct{ *rand.Rand }

func (g expressions) one(of ...string) string { return of[g.IntN(len(of))] }

// maybe a field of JSON, with a comma.
func (g expressions) maybe(field string) string {
	if g.IntN(3) > 0 {
		return ""
	}
	return field + ", "
}

func (g expressions) fit() string {
	return g.one(
		`class.spec.driver == claim.spec.driver`, `claim.spec.driver == class.spec.driver && class.spec.size > 2`,
		`class.spec.driver == related.plan.spec.driver`, `class.spec.size == claim.spec.size + 1 && claim.spec.size > 0`, `claim.spec.size <= class.spec.size`,
		`has(class.spec.ready) && class.spec.ready`, `class.spec.ready`, `claim.spec.size / class.spec.zero < 5`, `claim.spec.size > 1`,
		`class.metadata.labels.tier != 'bronze'`, `class.kind == 'FastClass' && class.metadata.name != 'class-3'`,
		`request.userInfo.username == 'jane' || class.spec.size > 1`, `class.spec.team in request.userInfo.groups`,
		`namespace.metadata.labels.tenant == class.metadata.labels.tenant`, `class.spec.sizes.exists(s, s == claim.spec.size)`,
		`!has(related.zone) || related.zone.spec.open`, `has(related.plan) ? class.spec.size < related.plan.spec.max : class.spec.size == 1`,
		`claim.metadata.labels.all(l, l != 'x') && class.spec.driver in ['a', 'b']`, `claim.spec.sizes[0] == class.spec.size`)
}

func (g expressions) claimKind() string {
	when := g.maybe(fmt.Sprintf(`"when": %q`, g.one(`claim.spec.phase == 'Ready'`, `!has(claim.spec.hold)`, `related.plan.spec.open`,
		`!has(claim.spec.classRef) || claim.spec.classRef.name == 'default'`, `request.userInfo.username == 'jane'`)))
	selecting := g.maybe(fmt.Sprintf(`"expression": %q`, g.one(`'tier=' + claim.spec.tier`, `{'tier': claim.spec.tier}`, `has(claim.spec.tier) ? 'tier=' + claim.spec.tier : ''`,
		`'tier in (' + related.plan.spec.tiers + ')'`, `'tier=' + namespace.metadata.labels.tenant`, `{'tier': 'silver'}`)))
	classes := ""
	fits := []string{}
	for n := range g.IntN(3) {
		fits = append(fits, fmt.Sprintf(`{"name": "Fit%d", "expression": %q, "message": %q}`, n, g.fit(), g.one("", "of another sort")))
	}
	classes += fmt.Sprintf(`"fits": [%s], `, strings.Join(fits, ", "))
	classes += g.maybe(fmt.Sprintf(`"partition": {"claim": %q, "class": %q}`, g.one(`namespace.metadata.labels.tenant`, `has(claim.spec.tier) ? claim.spec.tier : ''`, `claim.spec.tier`, `related.plan.spec.tier`),
		g.one(`class.metadata.labels.tier`, `has(class.spec.team) ? class.metadata.labels.tier : ''`, `class.spec.tenant`)))
	choice := `"strategy": "` + g.one("Random", "WeightedRandom", "HighestWeight") + `", `
	if score := g.maybe(fmt.Sprintf(`"score": %q`, g.one(`class.spec.price`, `class.spec.price * double(claim.spec.size)`, `class.spec.size / claim.spec.size`))); score != "" {
		choice = score + `"strategy": "` + g.one("LowestScore", "HighestScore") + `", `
	}
	if g.IntN(25) == 0 {
		choice = `"score": "class.size +", "strategy": "LowestScore", `
	}
	return fmt.Sprintf(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": {
		"claims": {%s}, "reference": {"path": ".spec.classRef"}, "selector": {%s"path": ".spec.classSelector", "whenAbsent": %q},
		"classes": {%s"related": [{"name": "plan", "resource": "plans.example.org", "nameExpression": %q}, {"name": "zone", "resource": "zones.example.org", "nameExpression": "related.plan.spec.zone"}]},
		"choice": {%s"seed": %q}, "whenUnmatched": %q}}`, strings.TrimSuffix(when, ", "), selecting, g.one("Default", "Default", "Any", "LeaveAlone"), classes,
		g.one(`has(claim.spec.plan) ? claim.spec.plan : ''`, `has(claim.spec.plan) ? claim.spec.plan : ''`, `claim.spec.plan`, `'plan-1'`),
		choice, g.one("Claim", "Request"), g.one("Admit", "Deny"))
}

func (g expressions) classKind() string {
	spec := g.maybe(`"fits": [{"name": "Size", "expression": "`+g.one("claim.spec.size <= class.spec.size", "class.spec.size > 1 && claim.spec.size < 3")+`"}]`) +
		g.maybe(fmt.Sprintf(`"offerWhen": %q`, g.one("class.spec.ready", "!has(class.spec.ready) || class.spec.ready", "class.spec.size > 1"))) +
		g.maybe(fmt.Sprintf(`"default": {"expression": %q}`, g.one("class.spec.usual", "class.spec.size > 2"))) +
		g.maybe(fmt.Sprintf(`"weight": {"expression": %q}`, g.one("class.spec.size", "class.spec.price", "class.spec.driver == 'a' ? 0 : 3")))
	return fmt.Sprintf(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "fastclasses.example.org"}, "spec": {%s"claimKinds": [{"name": "databases.example.org"}]}}`, spec)
}

func (g expressions) classes() (all []string) {
	n := g.IntN(8)
	if g.IntN(3) == 0 { // An index is worth it.
		n = 40
	}
	for i := range n {
		spec := fmt.Sprintf(`{%s%s%s%s%s%s%s"usual": %s, "zero": %s, "driver": %q}`, g.often(`"size": %d`, g.IntN(4)), g.often(`"price": %d.5`, g.IntN(4)), g.maybe(`"ready": true`), g.maybe(`"ready": false`),
			g.often(`"sizes": [1, %d]`, g.IntN(4)), g.often(`"tenant": "%d"`, g.IntN(3)), g.often(`"team": %q`, g.one("red", "blue")), g.one("true", "false"), g.one("0", "1", `"none"`), g.one("a", "b", "c"))
		all = append(all, fmt.Sprintf(`{"apiVersion": "example.org/v1", "kind": "FastClass", "metadata": {"name": "class-%d", "labels": {"tenant": %q, "tier": %q}, "annotations": {"resourceclass.crossplane.io/is-default-class": %q, "classbind.io/cordoned": %q}}, "spec": %s}`,
			i, g.one("gold", "silver", "a"), g.one("gold", "silver", "bronze", ""), g.one("true", "false"), g.one("true", "false", "false", "false", "false"), spec))
	}
	return all
}

// often is a field of JSON, with a comma.
func (g expressions) often(format string, of any) string {
	if g.IntN(5) == 0 {
		return ""
	}
	return fmt.Sprintf(format, of) + ", "
}

func (g expressions) related() (all []string) {
	all = append(all, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"tenant": %q}}}`, g.one("gold", "silver", "a")))
	for i := range 3 {
		all = append(all, fmt.Sprintf(`{"apiVersion": "example.org/v1", "kind": "Plan", "metadata": {"namespace": "team", "name": "plan-%d"}, "spec": {%s%s"open": %s, "zone": "zone-%d", "tier": %q, "tiers": %q}}`,
			i, g.often(`"driver": %q`, g.one("a", "b")), g.often(`"max": %d`, g.IntN(5)), g.one("true", "false"), g.IntN(3), g.one("gold", "silver"), g.one("gold,silver", "bronze", "-")))
	}
	return append(all, fmt.Sprintf(`{"apiVersion": "example.org/v1", "kind": "Zone", "metadata": {"name": "zone-1"}, "spec": {"open": %s}}`, g.one("true", "false")))
}

func (g expressions) claim(i int) string {
	spec := g.often(`"size": %d`, g.IntN(4)) + g.often(`"tier": %q`, g.one("gold", "silver", "bronze", "-")) + g.often(`"driver": %q`, g.one("a", "b", "d")) + g.often(`"plan": "plan-%d"`, g.IntN(4)) +
		g.often(`"phase": %q`, g.one("Ready", "Ready", "Draft")) + g.maybe(`"hold": 1`) + g.often(`"sizes": [%d]`, g.IntN(4)) +
		g.one("", "", "", `"classRef": {"name": "default"}, `, `"classRef": {"kind": "FastClass", "name": "mine"}, `) +
		g.one("", "", `"classSelector": {}, `, `"classSelector": {"matchLabels": {"tier": "gold"}}, `)
	name := g.one(fmt.Sprintf(`"name": "claim-%d"`, i), `"generateName": "claim-"`)
	return fmt.Sprintf(`{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"namespace": "team", "labels": {"a": "b"}, %s}, "spec": {%s"end": true}}`, name, spec)
}
